package web

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// band is one quantity over time, on a canvas of 1000 by 100.
type band struct {
	Name, Unit, Now, Top, Bottom, Alt string
	Lines                             []stroke
	Shades                            []shade
	Marks                             []mark
}

type stroke struct{ Class, Path string }

type shade struct{ X, Width string }

type mark struct{ X, Class, Text string }

// quantity says how a band is read: its value at a point, and its words.
type quantity struct {
	name, unit string
	of         func(tuner.Point) (float64, bool)
	words      func(float64) string
	// steps are constant between samples, and on a scale of doublings.
	steps bool
}

var quantities = []quantity{
	{"Restore from", "reusable tokens, doubling", func(p tuner.Point) (float64, bool) {
		return doublings(float64(p.Params.MinExternalReusableTokens), p.Params.MinExternalReusableTokens == store.Never, 16), true
	}, func(v float64) string { return undoubled(v, 16, "never") }, true},
	{"Unless", "requests waiting, doubling", func(p tuner.Point) (float64, bool) {
		return doublings(float64(p.Params.MaxWaitingRequests), p.Params.MaxWaitingRequests == store.NoGate, 7), true
	}, func(v float64) string { return undoubled(v, 7, "no limit") }, true},
	{"Cost of a request", "lower is better", func(p tuner.Point) (float64, bool) { return p.Cost, p.Cost > 0 }, seconds, false},
}

// doublings puts a threshold on a scale of powers of two, its open end at last.
func doublings(v float64, open bool, last float64) float64 {
	if open {
		return last
	}
	return min(math.Log2(v), last-1)
}

func undoubled(v, last float64, open string) string {
	if v >= last {
		return open
	}
	return number(math.Round(math.Exp2(v)))
}

// shortest is the least time that the timeline spans.
const shortest = 30 * time.Minute

// canvas maps times to the width of a band.
type canvas struct{ from, to time.Time }

func (c canvas) x(t time.Time) float64 {
	return 1000 * min(max(t.Sub(c.from).Seconds()/c.to.Sub(c.from).Seconds(), 0), 1)
}

// draw the points, with a mark at each decision that changed something.
func draw(points []tuner.Point, decisions []store.Decision, now time.Time) (bands []band, axis []string) {
	if len(points) == 0 {
		return nil, nil
	}
	c := canvas{points[0].Time, now}
	if last := points[len(points)-1].Time; last.After(c.to) {
		c.to = last
	}
	if c.to.Sub(c.from) < shortest {
		c.from = c.to.Add(-shortest)
	}
	shades, marks := c.shades(points), c.marks(decisions)
	for _, q := range quantities {
		if b, ok := c.band(q, points); ok {
			b.Shades, b.Marks = shades, marks
			bands = append(bands, b)
		}
	}
	const ticks = 5
	for i := range ticks {
		axis = append(axis, c.from.Add(c.to.Sub(c.from)*time.Duration(i)/(ticks-1)).UTC().Format("15:04"))
	}
	axis[ticks-1] += " UTC"
	return bands, axis
}

// present adds what is in force now to what the last sample saw.
func present(points []tuner.Point, s PoolStatus, now time.Time) []tuner.Point {
	if len(points) == 0 || s.Incumbent == nil || !now.After(points[len(points)-1].Time) {
		return points
	}
	p := tuner.Point{Time: now, Arm: store.ArmBaseline, Params: *s.Incumbent}
	if s.Trial != nil && s.Trial.Arm == store.ArmCandidate {
		p.Arm, p.Params = store.ArmCandidate, s.Trial.Candidate
	}
	return append(slices.Clip(points), p)
}

func (c canvas) band(q quantity, points []tuner.Point) (b band, ok bool) {
	low, high, last := math.Inf(1), math.Inf(-1), 0.0
	for _, p := range points {
		if v, known := q.of(p); known {
			low, high, last, ok = min(low, v), max(high, v), v, true
		}
	}
	if !ok {
		return b, false
	}
	if q.steps {
		low, high = low-1, high+1
	} else {
		low, high = 0.9*low, 1.05*high
	}
	y := func(v float64) float64 { return 100 - 100*(v-low)/(high-low) }
	b = band{Name: q.name, Unit: q.unit, Now: q.words(last), Lines: c.lines(q, points, y)}
	b.Top, b.Bottom = q.words(high), q.words(max(low, 0))
	b.Alt = fmt.Sprintf("%s over time, from %s to %s; now %s", q.name, q.words(max(low, 0)), q.words(high), b.Now)
	return b, true
}

// lines joins the samples of an arm that follow each other.
func (c canvas) lines(q quantity, points []tuner.Point, y func(float64) float64) []stroke {
	var all []stroke
	var path strings.Builder
	arm, at, before := store.Arm(""), time.Time{}, 0.0
	end := func() {
		if path.Len() > 0 {
			all = append(all, stroke{string(arm), path.String()})
		}
		path.Reset()
	}
	for _, p := range points {
		v, known := q.of(p)
		gap := p.Time.Sub(at) > gapAfter
		switch {
		case !known:
			end()
			continue
		case path.Len() == 0 || gap || p.Arm != arm && !q.steps:
			end()
			fmt.Fprintf(&path, "M%.1f %.1f", c.x(p.Time), y(v))
		case p.Arm != arm:
			fmt.Fprintf(&path, "H%.1f", c.x(p.Time))
			end()
			fmt.Fprintf(&path, "M%.1f %.1fV%.1f", c.x(p.Time), y(before), y(v))
		case q.steps:
			fmt.Fprintf(&path, "H%.1fV%.1f", c.x(p.Time), y(v))
		default:
			fmt.Fprintf(&path, "L%.1f %.1f", c.x(p.Time), y(v))
		}
		arm, at, before = p.Arm, p.Time, v
	}
	end()
	return all
}

// gapAfter is how far apart samples are that do not belong together.
const gapAfter = 10 * time.Minute

// shades are the stretches in which a candidate was in force.
func (c canvas) shades(points []tuner.Point) []shade {
	var all []shade
	for i, p := range points {
		if p.Arm != store.ArmCandidate || i > 0 && points[i-1].Arm == store.ArmCandidate {
			continue
		}
		end := i
		for end+1 < len(points) && points[end+1].Arm == store.ArmCandidate {
			end++
		}
		x := c.x(p.Time)
		all = append(all, shade{fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", max(2, c.x(points[end].Time)-x))})
	}
	return all
}

// marks are the decisions that changed what is in force, and what people did.
func (c canvas) marks(decisions []store.Decision) []mark {
	classes := map[string]string{"calm": "move", "stop": "back", "hold": "person"}
	var all []mark
	for _, d := range decisions {
		class := classes[classOf(d)]
		if class == "" || d.Time.Before(c.from) || d.Kind == store.KindHold || d.Kind == store.KindResume && d.Actor == "" {
			continue
		}
		all = append(all, mark{fmt.Sprintf("%.1f", c.x(d.Time)), class, clock(d.Time) + " " + string(d.Kind) + ": " + d.Reason})
	}
	return all
}
