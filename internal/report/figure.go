package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

// figure is the timeline, laid out for one width. Lengths are pixels.
type figure struct {
	ID            string
	Width, Height string
	Desc          string
	Bands         []band
	Trials        []box
	Marks         []mark
	Panels        []panel
	Hours         []label
	Hover         []box
	// Plot is the rectangle of all panels.
	Plot box
	// MarkFoot is where the leaders from the marks end.
	MarkFoot string
}

// box is a rectangle with a text to show for it.
type box struct{ X, Y, W, H, Title string }

// band is a phase.
type band struct {
	box
	Name, Middle  string
	Odd, Strained bool
}

// mark is a decision.
type mark struct {
	X, Y, Title, Tone string
	N                 int
}

type label struct{ X, Y, Text string }

// panel is one quantity over time.
type panel struct {
	Title   string
	TitleY  string
	Box     box
	Grid    []label
	Lines   []line
	Caption string
}

type line struct{ Class, D string }

// layout of a figure.
type layout struct {
	id          string
	width       float64
	left, right float64
	points      int           // most points of a line
	hour        time.Duration // between two labels of the time axis
	hover       int           // columns that show their values
}

const (
	bandHeight  = 26.0
	laneHeight  = 19.0
	panelGap    = 34.0
	axisHeight  = 30.0
	markRadius  = 8.0
	letterWidth = 7.5
)

// layouts for a desktop, a tablet and a phone. The page shows the one that fits.
func layouts(total time.Duration) []layout {
	return []layout{
		{"wide", 1080, 64, 14, 320, hourStep(total, 10), 100},
		{"medium", 700, 58, 10, 220, hourStep(total, 6), 70},
		{"narrow", 380, 50, 8, 130, hourStep(total, 4), 0},
	}
}

// hourStep leaves at most so many labels.
func hourStep(total time.Duration, labels int) time.Duration {
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour} {
		if total <= d*time.Duration(labels) {
			return d
		}
	}
	return 12 * time.Hour
}

// drawing carries what all parts of a figure need.
type drawing struct {
	story  Story
	layout layout
	total  time.Duration
	path   []lab.Point
}

func (s Story) figure(l layout) figure {
	d := drawing{story: s, layout: l, total: s.total(), path: s.Tuned.Outcome.Path}
	marks, lanes := d.marks()
	top := bandHeight + 8 + float64(lanes)*laneHeight
	panels, foot := d.panels(top + 14)
	f := figure{
		ID: l.id, Width: px(l.width), Height: px(foot + axisHeight), Desc: s.describe(),
		Bands: d.bands(foot), Marks: marks, Panels: panels, MarkFoot: px(foot),
		Plot: box{X: px(l.left), Y: px(bandHeight), W: px(d.plotWidth()), H: px(foot - bandHeight)},
	}
	f.Trials = d.trials(top, foot)
	f.Hours = d.hours(foot + 18)
	f.Hover = d.hover(bandHeight, foot)
	return f
}

func (d drawing) plotWidth() float64 { return d.layout.width - d.layout.left - d.layout.right }

func (d drawing) x(t time.Duration) float64 {
	return d.layout.left + d.plotWidth()*t.Seconds()/d.total.Seconds()
}

func (d drawing) bands(foot float64) []band {
	var all []band
	var at time.Duration
	for i, p := range d.story.Phases {
		x0, x1 := d.x(at), d.x(at+p.Duration)
		at += p.Duration
		all = append(all, band{
			box:  box{X: px(x0), Y: "0.0", W: px(x1 - x0), H: px(foot), Title: fmt.Sprintf("phase %d: %s. %s", i+1, p.Name, p.Note)},
			Name: fit(fmt.Sprintf("%d %s", i+1, p.Name), fmt.Sprint(i+1), x1-x0), Middle: px((x0 + x1) / 2), Odd: i%2 == 1, Strained: p.Strained,
		})
	}
	return all
}

// fit is the long text if it fits the width, else the short one.
func fit(long, short string, width float64) string {
	if letterWidth*float64(len(long))+8 <= width {
		return long
	}
	return short
}

// trials shade the stretches during which a candidate was in force.
func (d drawing) trials(top, foot float64) []box {
	var all []box
	for _, s := range candidates(d.path, d.total) {
		x0, x1 := d.x(s.From), d.x(s.To)
		all = append(all, box{X: px(x0), Y: px(top), W: px(max(x1-x0, 1)), H: px(foot - top),
			Title: fmt.Sprintf("candidate %s in force, %s to %s", s.Params, Clock(s.From), Clock(s.To))})
	}
	return all
}

// marks puts each decision at its time, in the first lane where it covers no
// other.
func (d drawing) marks() (all []mark, lanes int) {
	var ends []float64
	for _, decided := range d.story.Decisions() {
		x := min(max(d.x(decided.At), d.layout.left+markRadius), d.layout.width-markRadius-1)
		lane := 0
		for lane < len(ends) && x-markRadius < ends[lane]+2 {
			lane++
		}
		if lane == len(ends) {
			ends = append(ends, 0)
		}
		ends[lane] = x + markRadius
		all = append(all, mark{
			X: px(x), Y: px(bandHeight + 14 + float64(lane)*laneHeight), N: decided.N, Tone: decided.Tone(),
			Title: fmt.Sprintf("%s %s, %s: %s", decided.Clock(), decided.Kind, decided.Change(), decided.Reason),
		})
	}
	return all, len(ends)
}

func (d drawing) hours(y float64) []label {
	var all []label
	for t := time.Duration(0); t <= d.total; t += d.layout.hour {
		// The last label must not be cut off.
		x := min(d.x(t), d.layout.width-13)
		all = append(all, label{px(x), px(y), strings.TrimSuffix(Clock(t), ":00")})
	}
	return all
}

// hover are columns over the whole plot whose text has the values under them.
func (d drawing) hover(top, foot float64) []box {
	if d.layout.hover == 0 {
		return nil
	}
	w := window(d.total, d.layout.hover)
	tuned, reference := d.story.Tuned, d.story.Reference
	referenceValues := d.values(reference.Outcome.Seconds, w)
	var all []box
	for i, v := range d.values(tuned.Outcome.Seconds, w) {
		from, to := time.Duration(i)*w, min(time.Duration(i+1)*w, d.total)
		text := fmt.Sprintf("%s to %s\n%s: %s\n%s: %s", Clock(from), Clock(to),
			tuned.Policy, v, reference.Policy, referenceValues[i])
		all = append(all, box{X: px(d.x(from)), Y: px(top), W: px(d.x(to) - d.x(from)), H: px(foot - top), Title: text})
	}
	return all
}

func (d drawing) values(all []fleet.Second, w time.Duration) []string {
	rate, ttft, e2e := average(all, w, throughput), average(all, w, meanTTFT), average(all, w, meanE2E)
	var out []string
	for i := range rate {
		out = append(out, fmt.Sprintf("%s, TTFT %s, end-to-end %s", perSecond(rate[i].V), seconds(ttft[i].V), seconds(e2e[i].V)))
	}
	return out
}

// describe is the figure in words.
func (s Story) describe() string {
	var path []string
	for _, p := range Incumbents(s.Tuned.Outcome.Path) {
		path = append(path, fmt.Sprintf("%s from %s", p.Params, Clock(p.At)))
	}
	return fmt.Sprintf("Both thresholds, throughput, mean TTFT and mean end-to-end time over %s of virtual time, for %s and %s. Thresholds: %s. All values are in the tables below.",
		span(s.total()), s.Tuned.Policy, s.Reference.Policy, strings.Join(path, ", "))
}
