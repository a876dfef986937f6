package main

import (
	"fmt"
	"io"
	"time"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/internal/lab"
	pages "github.com/kvtuner/kvtuner/internal/report"
)

// demoText writes what a demo found.
func demoText(s pages.Story) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprintf(w, "Policies over the whole run (%s, seed %d), differences against %s\n\n", totalOf(s), s.Seed, s.Reference.Policy)
		io.WriteString(w, bench.Align(wholeTable(s.Whole())))
		fmt.Fprintf(w, "\nBy phase against %s: end-to-end time, TTFT, throughput\n\n", s.Reference.Policy)
		io.WriteString(w, bench.Align(phaseTable(s)))
		fmt.Fprintf(w, "\nThresholds of the tuner (tokens+waiting)\n\n")
		writePath(w, pages.Incumbents(s.Tuned.Outcome.Path))
		fmt.Fprintf(w, "\nDecisions of the tuner, and why\n\n")
		for _, d := range s.Decisions() {
			fmt.Fprintf(w, "  %s  %-8s %s\n           %s\n", d.Clock(), d.Kind, d.Change(), oneLine(d.Reason))
		}
	}
}

func totalOf(s pages.Story) time.Duration {
	var total time.Duration
	for _, p := range s.Phases {
		total += p.Duration
	}
	return total
}

func wholeTable(c pages.Comparison) [][]string {
	head := []string{"policy"}
	for _, m := range c.Measures {
		head = append(head, m, "")
	}
	rows := [][]string{head}
	for _, l := range c.Lines {
		row := []string{l.Policy}
		for _, cell := range l.Cells {
			row = append(row, cell.Value, cell.Change)
		}
		rows = append(rows, row)
	}
	return rows
}

// phaseTable has a row for each phase and a column for each policy but the
// reference.
func phaseTable(s pages.Story) [][]string {
	head := []string{"phase"}
	var rows [][]string
	for i, c := range s.ByPhase() {
		row := []string{fmt.Sprintf("%d %s", i+1, c.Title)}
		for _, l := range c.Lines {
			if l.Policy == s.Reference.Policy {
				continue
			}
			if i == 0 {
				head = append(head, l.Policy)
			}
			row = append(row, fmt.Sprintf("%s %7s %7s", l.Cells[3].Change, l.Cells[1].Change, l.Cells[0].Change))
		}
		rows = append(rows, row)
	}
	return append([][]string{head}, rows...)
}

func writePath(w io.Writer, path []lab.Point) {
	for _, p := range path {
		fmt.Fprintf(w, "  %s  %s\n", pages.Clock(p.At), paramsWords(p.Params))
	}
}
