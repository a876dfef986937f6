package report

import (
	"github.com/kvtuner/kvtuner/internal/fleet"
)

// Comparison holds policies against the reference.
type Comparison struct {
	Title string
	// Measures name the columns.
	Measures []string
	Lines    []Line
}

// Line is a policy in a comparison.
type Line struct {
	Policy string
	Cells  []Cell
}

// Cell is a measured value and how it differs from the reference's.
type Cell struct {
	Value string
	// Change is empty for the reference itself.
	Change string
	// Tone is "better", "worse", or empty within what two runs differ by anyway.
	Tone string
}

type measure struct {
	name   string
	of     func(fleet.Stats) float64
	show   func(float64) string
	better float64 // 1 if more is better, -1 if less is
	// noise is the relative difference below which a cell takes no side: two
	// runs of one policy over half an hour differ by as much.
	noise float64
}

var measures = []measure{
	{"throughput", func(s fleet.Stats) float64 { return s.RequestsPerSecond }, perSecond, 1, 0.02},
	{"mean TTFT", func(s fleet.Stats) float64 { return s.TTFTMean }, seconds, -1, 0.05},
	{"p99 TTFT", func(s fleet.Stats) float64 { return s.TTFTP99 }, seconds, -1, 0.15},
	{"mean end-to-end", func(s fleet.Stats) float64 { return s.E2EMean }, seconds, -1, 0.02},
}

// Whole compares the policies over all phases.
func (s Story) Whole() Comparison {
	return s.compare("whole run", func(r Run) fleet.Stats { return r.Outcome.Stats })
}

// ByPhase compares them in each phase.
func (s Story) ByPhase() []Comparison {
	var all []Comparison
	for i, p := range s.Phases {
		all = append(all, s.compare(p.Name, func(r Run) fleet.Stats { return r.Outcome.Phases[i].Stats }))
	}
	return all
}

func (s Story) compare(title string, stats func(Run) fleet.Stats) Comparison {
	c := Comparison{Title: title}
	for _, m := range measures {
		c.Measures = append(c.Measures, m.name)
	}
	reference := stats(s.Reference)
	for _, r := range s.runs() {
		line := Line{Policy: r.Policy}
		for _, m := range measures {
			cell := Cell{Value: m.show(m.of(stats(r)))}
			if r.Policy != s.Reference.Policy {
				cell.Change, cell.Tone = m.against(m.of(stats(r)), m.of(reference))
			}
			line.Cells = append(line.Cells, cell)
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

func (m measure) against(own, reference float64) (text, tone string) {
	share := own/reference - 1
	switch {
	case m.better*share > m.noise:
		tone = "better"
	case m.better*share < -m.noise:
		tone = "worse"
	}
	return change(share), tone
}
