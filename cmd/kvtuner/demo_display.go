package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	pages "github.com/kvtuner/kvtuner/internal/report"
	"github.com/kvtuner/kvtuner/store"
)

// display shows a tuned run under way: a picture redrawn in place on a terminal,
// a line per phase and decision elsewhere.
type display struct {
	w       io.Writer
	inPlace bool
	width   int
	seed    uint64
	phases  []pages.Phase

	phase  int // 1 once the first was announced
	drawn  int // lines of the last picture
	recent []fleet.Second
	rate   []float64
	ttft   []float64
	last   string
}

func newDisplay(w io.Writer, seed uint64, phases []pages.Phase) *display {
	return &display{w: w, inPlace: isTerminal(w), width: terminalWidth(w, 80), seed: seed, phases: phases}
}

// show is told each step of the run.
func (d *display) show(p lab.Progress) {
	if d.inPlace {
		d.remember(p)
		d.draw(d.picture(p))
		return
	}
	for ; d.phase <= p.Phase; d.phase++ {
		phase := d.phases[d.phase]
		fmt.Fprintf(d.w, "%s  phase %d of %d, %s: %s\n", pages.Clock(d.starts(d.phase)), d.phase+1, len(d.phases), phase.Name, phase.Note)
	}
	if p.Decision != nil {
		fmt.Fprintf(d.w, "%s    %s %s\n", pages.Clock(p.Elapsed), p.Decision.Kind, arrow(*p.Decision))
	}
}

// end leaves the last picture and parts it from what follows.
func (d *display) end() { fmt.Fprintln(d.w) }

func (d *display) starts(phase int) time.Duration {
	var at time.Duration
	for _, p := range d.phases[:phase] {
		at += p.Duration
	}
	return at
}

const (
	// smoothed is the number of steps whose last seconds are averaged for a bar.
	smoothed = 4
	// sparkCells is the length of a sparkline.
	sparkCells = 40
)

func (d *display) remember(p lab.Progress) {
	d.recent = lastOf(append(d.recent, p.Second), smoothed)
	var sum fleet.Second
	for _, s := range d.recent {
		sum.Requests += s.Requests
		sum.TTFT += s.TTFT
	}
	d.rate = lastOf(append(d.rate, float64(sum.Requests)/float64(len(d.recent))), sparkCells)
	if sum.Requests > 0 {
		d.ttft = lastOf(append(d.ttft, sum.TTFT/float64(sum.Requests)), sparkCells)
	}
	if p.Decision != nil {
		d.last = fmt.Sprintf("%s %s: %s", pages.Clock(p.Elapsed), p.Decision.Kind, oneLine(p.Decision.Reason))
	}
}

func lastOf[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

// picture are the lines of the display.
func (d *display) picture(p lab.Progress) []string {
	phase := d.phases[p.Phase]
	lines := []string{
		fmt.Sprintf("kvtuner demo, seed %d", d.seed),
		fmt.Sprintf("  %s %s of %s", progressBar(p), pages.Clock(p.Elapsed), pages.Clock(p.Total)),
		fmt.Sprintf("  phase %d of %d   %s: %s", p.Phase+1, len(d.phases), phase.Name, phase.Note),
		fmt.Sprintf("  thresholds    %s", thresholdWords(p)),
		fmt.Sprintf("  throughput    %s", sparkline(d.rate, "%.1f requests/s")),
		fmt.Sprintf("  mean TTFT     %s", sparkline(d.ttft, "%.2f s")),
		fmt.Sprintf("  last decision %s", d.last),
	}
	for i, l := range lines {
		lines[i] = clip(printable(l), d.width-1)
	}
	return lines
}

func thresholdWords(p lab.Progress) string {
	if p.Params == (store.Params{}) {
		return "as configured"
	}
	trial := ""
	if p.Trial != nil {
		trial = ", on trial: " + p.Trial.Candidate.String()
	}
	return fmt.Sprintf("%s%s (%s; %s)", p.Params, trial, tokenWords(p.Params.MinExternalReusableTokens), gateWords(p.Params.MaxWaitingRequests))
}

func progressBar(p lab.Progress) string {
	const width = 40
	full := cell(p.Elapsed.Seconds(), 0, p.Total.Seconds(), width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}

// sparkline draws values from the lowest to the highest of them, and names the
// last.
func sparkline(values []float64, format string) string {
	if len(values) == 0 {
		return ""
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	g := drawn()
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(g.bar(v, low, high))
	}
	pad := strings.Repeat(" ", sparkCells-len(values))
	return b.String() + pad + " " + fmt.Sprintf(format, values[len(values)-1])
}

// clip shortens a line to a width: a wrapped line could not be redrawn.
func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= max(width, 1) {
		return s
	}
	return string(r[:max(width, 1)-1]) + printable("…")
}

// draw replaces the last picture.
func (d *display) draw(lines []string) {
	var b strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", d.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[K" + l + "\n")
	}
	d.drawn = len(lines)
	_, _ = io.WriteString(d.w, b.String()) // a picture nobody sees is no loss
}
