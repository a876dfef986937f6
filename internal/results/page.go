package results

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strings"
	"text/template"

	"github.com/kvtuner/kvtuner/internal/bench"
)

//go:embed results.md.tmpl
var pageText string

var page = template.Must(template.New("results.md").Funcs(template.FuncMap{
	"metric": func(s bench.Summary, name string) bench.Estimate { return s.Metrics[name] },
	"plain":  func(e bench.Estimate, digits int) string { return interval(e, 1, digits, "") },
	"ms":     func(e bench.Estimate) string { return interval(e, 1000, 0, "") },
	"change": change,
	"versus": func(s bench.Summary, name string) string { return change(s.Versus.Metrics[name]) },
	"pct":    func(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) },
	"minutes": func(r RecoveryOfPolicy) string {
		if m := r.Minutes(); m >= 0 {
			return fmt.Sprintf("%d min", m)
		}
		return "not in 30 min"
	},
}).Parse(pageText))

// WritePage writes the page in Markdown, which says that it was made by command.
func (s Study) WritePage(w io.Writer, command string) error {
	var b strings.Builder
	err := page.Execute(&b, struct {
		Study
		Command string
	}{s, command})
	if err != nil {
		return fmt.Errorf("render the results: %w", err)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// interval is a mean and its 95% interval.
func interval(e bench.Estimate, scale float64, digits int, unit string) string {
	mean, half := float64(e.Mean)*scale, float64(e.CI95)*scale
	switch {
	case math.IsNaN(mean):
		return "-"
	case math.IsNaN(half):
		return fmt.Sprintf("%.*f%s", digits, mean, unit)
	}
	return fmt.Sprintf("%.*f ± %.*f%s", digits, mean, digits, half, unit)
}

// change is a relative difference in percent.
func change(e bench.Estimate) string {
	if math.IsNaN(float64(e.Mean)) {
		return "-"
	}
	s := fmt.Sprintf("%+.1f%%", 100*float64(e.Mean))
	if half := 100 * float64(e.CI95); !math.IsNaN(half) {
		s += fmt.Sprintf(" ± %.1f", half)
	}
	return s
}
