package validation

import (
	"fmt"
	"io"
	"math"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// Fit is the outcome of a calibration.
type Fit struct {
	// Before and After are the profile it started from and the one it found,
	// held against all measurements, fitted and held out.
	Before, After Check
	// Evaluations made, with the least Loss.
	Evaluations int
	Loss        float64
	// Seed of the search, and of the runs in each evaluation.
	Seed     uint64
	RunSeeds []uint64
	// Free are the names of the parameters that were moved; nil is every
	// fitted one.
	Free []string
	// Command that can be repeated.
	Command string
}

// WriteReport writes the report of the fit, in Markdown.
func (f Fit) WriteReport(w io.Writer) error {
	type change struct {
		Name          string
		Before, After part
	}
	err := document.ExecuteTemplate(w, "fit.md.tmpl", struct {
		Fit
		Halves []change
	}{f, []change{
		{"fitted", f.Before.part(true), f.After.part(true)},
		{"held out", f.Before.part(false), f.After.part(false)},
	}})
	if err != nil {
		return fmt.Errorf("render the fit report: %w", err)
	}
	return nil
}

// move is a line about a parameter: before, after, and whether it ran into an
// end of its range.
func move(d fleet.Parameter, before, after fleet.Profile) string {
	note, v := "", d.Value(after)
	if near(v, d.Min) || near(v, d.Max) {
		note = "at the end of its range"
	}
	return fmt.Sprintf("| `%s` | %.4g | %.4g | %s | %.10g to %.10g | %s |", d.Name, d.Value(before), v, d.Unit, d.Min, d.Max, note)
}

// Figures are the measured numbers the fit had.
func (f Fit) Figures() int {
	n := 0
	for _, r := range f.After.Comparison.Runs {
		if r.Fitted {
			n += r.Published.Figures()
		}
	}
	return n
}

// Few tells that there were fewer of them than parameters to find.
func (f Fit) Few() (bool, error) {
	free, err := fleet.FreeParameters(f.Free)
	return f.Figures() < len(free), err
}

func near(v, bound float64) bool { return math.Abs(v-bound) <= 1e-9*math.Abs(bound) }
