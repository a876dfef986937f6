package validation

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"text/template"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// Fit is the outcome of a calibration.
type Fit struct {
	// Before and After are the profile it started from and the one it found,
	// held against all measurements, fitted and held out.
	Before, After Check
	// Evaluations made of those Planned, with the least Loss.
	Evaluations, Planned int
	Loss                 float64
	// Seed of the search, and of the runs in each evaluation.
	Seed     uint64
	RunSeeds []uint64
	// Free are the names of the parameters that were moved; nil is every
	// fitted one.
	Free []string
	// Command that can be repeated.
	Command string
}

//go:embed fit.md.tmpl
var fitText string

var fitReport = template.Must(template.Must(document.Clone()).New("fit").Funcs(template.FuncMap{
	"free": func(names []string) []fleet.Parameter { return freeParameters(names) },
	"move": move,
}).Parse(fitText))

// WriteReport writes the report of the fit, in Markdown.
func (f Fit) WriteReport(w io.Writer) error {
	type half struct {
		Name          string
		Before, After part
	}
	err := fitReport.ExecuteTemplate(w, "fit", struct {
		Fit
		Halves []half
	}{f, []half{
		{"fitted", f.Before.part(true), f.After.part(true)},
		{"held out", f.Before.part(false), f.After.part(false)},
	}})
	if err != nil {
		return fmt.Errorf("render the fit report: %w", err)
	}
	return nil
}

func freeParameters(names []string) []fleet.Parameter {
	var all []fleet.Parameter
	for _, d := range fleet.Parameters() {
		free := names == nil && d.Source == fleet.FromFit
		for _, n := range names {
			free = free || n == d.Name
		}
		if free {
			all = append(all, d)
		}
	}
	return all
}

// move is a line about a parameter: before, after, and whether it ran into an
// end of its range.
func move(d fleet.Parameter, before, after fleet.Profile) string {
	note, v := "", d.Value(after)
	if near(v, d.Min) || near(v, d.Max) {
		note = "at the end of its range"
	}
	return fmt.Sprintf("| `%s` | %.4g | %.4g | %s | %v to %v | %s |", d.Name, d.Value(before), v, d.Unit, d.Min, d.Max, note)
}

func near(v, bound float64) bool { return math.Abs(v-bound) <= 1e-9*math.Abs(bound) }
