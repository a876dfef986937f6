package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteTable writes, for each place, a line per policy: means over the seeds and
// the half-widths of their 95% confidence intervals.
func WriteTable(w io.Writer, r Result) error {
	for i, block := range blocks(r.Summary) {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s\n%s", heading(block), Align(cells(block))); err != nil {
			return err
		}
	}
	return nil
}

func blocks(all []Summary) [][]Summary {
	var out [][]Summary
	for i, s := range all {
		if i == 0 || s.Place != all[i-1].Place {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], s)
	}
	return out
}

func heading(block []Summary) string {
	s := block[0]
	title := s.Scenario
	if s.Schedule != "" && s.Phase > 0 {
		title = fmt.Sprintf("%s, phase %d: %s", s.Schedule, s.Phase, s.Scenario)
	} else if s.Schedule != "" {
		title = s.Schedule + ", all phases"
	}
	if s.Seeds == 1 {
		title += ", one seed"
	} else {
		title += fmt.Sprintf(", mean ± 95%% interval of %d seeds", s.Seeds)
	}
	if r := reference(block); r != "" {
		title += ", ref is " + r
	}
	return title
}

// reference is the policy that a block is compared with, if any.
func reference(block []Summary) string {
	for _, s := range block {
		if s.Versus != nil {
			return s.Versus.Policy
		}
	}
	return ""
}

// column of a table.
type column struct {
	head string
	of   func(Summary) string
}

func cells(block []Summary) [][]string {
	columns := tableColumns(block)
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.head
	}
	out := [][]string{head}
	for _, s := range block {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = c.of(s)
		}
		out = append(out, line)
	}
	return out
}

// tableColumns leaves out what no line of the block has.
func tableColumns(block []Summary) []column {
	all := []column{
		{"policy", Summary.label},
		{"req/s", func(s Summary) string { return s.Metrics["requests_per_s"].text(2) }},
		{"TTFT ms", func(s Summary) string { return s.Metrics["ttft_mean_s"].scaled(1000).text(0) }},
		{"p99 ms", func(s Summary) string { return s.Metrics["ttft_p99_s"].scaled(1000).mean(0) }},
		{"e2e s", func(s Summary) string { return s.Metrics["e2e_mean_s"].text(2) }},
		{"restored", func(s Summary) string { return s.Metrics["external_prompt_share"].percent() }},
	}
	if reference(block) != "" {
		all = append(all, column{"e2e to ref", Summary.versusCell})
	}
	if _, ok := block[0].Metrics[efficiencyName]; ok {
		all = append(all, column{"efficiency", func(s Summary) string { return s.Metrics[efficiencyName].mean(3) }})
	}
	if slices.ContainsFunc(block, Summary.tuned) {
		all = append(all, column{"moves/trials", Summary.activityCell})
	}
	return all
}

func (s Summary) label() string {
	if s.Pair == "" {
		return s.Policy
	}
	return s.Policy + " " + s.Pair
}

func (s Summary) tuned() bool {
	m := s.Metrics
	return m["moves"].Mean+m["trials"].Mean+m["aborted"].Mean > 0
}

func (s Summary) activityCell() string {
	if !s.tuned() {
		return "-"
	}
	return s.Metrics["moves"].mean(1) + "/" + s.Metrics["trials"].mean(1)
}

func (s Summary) versusCell() string {
	if s.Versus == nil {
		return "-"
	}
	e := s.Versus.Metrics["e2e_mean_s"]
	if e.N < 2 {
		return e.percent()
	}
	return fmt.Sprintf("%+.1f%% ± %.1f", 100*float64(e.Mean), 100*float64(e.CI95))
}

// percent of a share, without its interval.
func (e Estimate) percent() string {
	if e.N == 0 {
		return e.mean(1)
	}
	return e.scaled(100).mean(1) + "%"
}

func (e Estimate) scaled(by float64) Estimate {
	return Estimate{Mean: e.Mean * Number(by), CI95: e.CI95 * Number(by), N: e.N}
}

// text is mean and interval: "12.30 ± 0.25".
func (e Estimate) text(decimals int) string {
	if e.N < 2 {
		return e.mean(decimals)
	}
	return fmt.Sprintf("%s ± %.*f", e.mean(decimals), decimals, float64(e.CI95))
}

// mean is "-" where nothing was measured.
func (e Estimate) mean(decimals int) string {
	if e.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, float64(e.Mean))
}

// Align sets cells in columns, the first to the left, the others to the right,
// two spaces apart and two from the margin. The first row is the head.
func Align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line.WriteString("  " + c + pad)
			} else {
				line.WriteString("  " + pad + c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
