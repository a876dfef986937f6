package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/kvtuner/kvtuner/store"
)

const (
	// intervalHalf is the width of either side of an interval's chart, in cells.
	intervalHalf = 24
	// bandCells is how many samples a row of a sample chart holds.
	bandCells = 60
)

// intervalChart draws an interval on an axis with no change in the middle:
//
//	better -11.0% [.....(====o====).......|........................] +11.0% worse
func intervalChart(i store.Interval) string {
	reach := 1.1 * max(math.Abs(i.Low), math.Abs(i.High), 0.01)
	at := func(v float64) int { return cell(v, -reach, reach, 2*intervalHalf) }
	axis := []byte(strings.Repeat(".", 2*intervalHalf+1))
	for c := at(i.Low); c <= at(i.High); c++ {
		axis[c] = '='
	}
	axis[intervalHalf] = '|'
	axis[at(i.Low)], axis[at(i.High)], axis[at(i.Estimate)] = '(', ')', 'o'
	return fmt.Sprintf("better %s [%s] %s worse", signed(-reach), axis, signed(reach))
}

// charted are the signals whose samples are drawn: what the decision weighs, and
// what an operator looks at first.
var charted = []string{"costSeconds", "ttftMeanSeconds", "waiting"}

// glyphs are what samples are drawn with: levels from the lowest of all samples to
// the highest, and a mark for an idle one.
type glyphs struct {
	levels []rune
	idle   rune
}

// drawn are the glyphs that the locale has.
func drawn() glyphs {
	if speaksUTF8() {
		return glyphs{[]rune("▁▂▃▄▅▆▇█"), '·'}
	}
	return glyphs{[]rune("_.:-=+*#"), 'i'}
}

// bar of a value between low and high.
func (g glyphs) bar(v, low, high float64) rune { return g.levels[cell(v, low, high, len(g.levels)-1)] }

// chartSamples draws samples over time, a row for each arm.
func chartSamples(w io.Writer, samples []store.Sample) {
	if len(samples) == 0 {
		return
	}
	g := drawn()
	fmt.Fprintf(w, "\nSamples, %s to %s (%c lowest, %c highest, %c idle, ? unknown, blank: the other arm)\n",
		stamp(samples[0].Time), stamp(samples[len(samples)-1].Time), g.levels[0], g.levels[len(g.levels)-1], g.idle)
	for _, name := range charted {
		g.chart(w, name, samples)
	}
}

func (g glyphs) chart(w io.Writer, name string, samples []store.Sample) {
	low, high, ok := span(name, samples)
	if !ok {
		return
	}
	fmt.Fprintf(w, "  %s, %s to %s\n", name, value(name, low), withUnit(name, high))
	for start := 0; start < len(samples); start += bandCells {
		band := samples[start:min(start+bandCells, len(samples))]
		for _, arm := range []store.Arm{store.ArmBaseline, store.ArmCandidate} {
			if cells, any := g.bars(name, arm, band, low, high); any {
				fmt.Fprintf(w, "    %-9s %s\n", arm, strings.TrimRight(cells, " "))
			}
		}
	}
}

// span is the range of a signal over samples; ok is false if none has it.
func span(name string, samples []store.Sample) (low, high float64, ok bool) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range samples {
		if v, has := s.Signals[name]; has {
			low, high, ok = min(low, v), max(high, v), true
		}
	}
	return low, high, ok
}

// bars has a cell for each sample; any is false if none is of the arm.
func (g glyphs) bars(name string, arm store.Arm, samples []store.Sample, low, high float64) (cells string, any bool) {
	var b strings.Builder
	for _, s := range samples {
		if s.Arm != arm {
			b.WriteRune(' ')
			continue
		}
		any = true
		b.WriteRune(g.sample(name, s, low, high))
	}
	return b.String(), any
}

func (g glyphs) sample(name string, s store.Sample, low, high float64) rune {
	v, has := s.Signals[name]
	switch {
	case s.State == store.StateIdle:
		return g.idle
	case !has:
		return '?'
	default:
		return g.bar(v, low, high)
	}
}

// cell places v between low and high on the cells 0 to last; what lies outside
// goes to an end, and so does everything when the range is empty.
func cell(v, low, high float64, last int) int {
	share := (v - low) / (high - low)
	if !(share > 0) {
		return 0
	}
	return int(math.Round(min(share, 1) * float64(last)))
}
