package fleet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/optimize"
)

// FitOptions configure Fit.
type FitOptions struct {
	// Compare says what to fit to, and from which profile to start. Hold back
	// the measurements that are to be predicted.
	Compare CompareOptions
	// Free names the parameters to move; nil moves every fitted one.
	Free []string
	// Evaluations bounds how often the measurements are simulated.
	Evaluations int
	// Seed of the search.
	Seed uint64
	// Step is the initial relative step; 0 is 0.1.
	Step float64
	// Progress, if set, is told after each evaluation the best loss and its
	// profile, so that a search can be resumed from it.
	Progress func(evaluation int, loss float64, best Profile)
}

// Fit moves parameters, within their ranges, to where Comparison.Loss is
// least, by a seeded CMA-ES on one core with common random numbers. It returns
// the best profile seen and its loss.
func Fit(o FitOptions) (Profile, float64, error) {
	space, err := newFitSpace(o.Compare.Profile, o.Free)
	if err != nil {
		return Profile{}, 0, fmt.Errorf("fit: %w", err)
	}
	if o.Evaluations < 1 {
		return Profile{}, 0, fmt.Errorf("fit: %d evaluations; at least 1 is needed", o.Evaluations)
	}
	if o.Step == 0 {
		o.Step = 0.1
	}
	best, least, n := o.Compare.Profile, math.Inf(1), 0
	evaluate := func(x []float64) float64 {
		p, outside := space.profile(x)
		compare := o.Compare
		compare.Profile = p
		c, failed := Compare(compare)
		if failed != nil {
			err = failed
			return math.Inf(1)
		}
		loss := c.Loss()
		if n++; loss < least {
			best, least = p, loss
		}
		if o.Progress != nil {
			o.Progress(n, least, best)
		}
		return loss + outside
	}
	origin := space.origin()
	evaluate(origin)
	if err != nil || o.Evaluations == 1 {
		return best, least, err
	}
	_, stopped := optimize.Minimize(
		optimize.Problem{Func: evaluate},
		origin,
		&optimize.Settings{FuncEvaluations: o.Evaluations, Concurrent: 1, Converger: optimize.NeverTerminate{}},
		&optimize.CmaEsChol{InitStepSize: o.Step, Src: rand.NewPCG(o.Seed, 1), StopLogDet: math.NaN()},
	)
	return best, least, errors.Join(err, stopped)
}

// fitSpace maps free parameters to coordinates in which a step of 0.1 is about
// 10%: logarithms where a parameter cannot be 0, else multiples of its start.
type fitSpace struct {
	base  Profile
	free  []Parameter
	scale []float64
}

func newFitSpace(base Profile, names []string) (fitSpace, error) {
	s := fitSpace{base: base}
	for _, d := range Parameters() {
		if names == nil && d.Source == FromFit || slices.Contains(names, d.Name) {
			s.free = append(s.free, d)
			s.scale = append(s.scale, math.Max(d.Value(base), 0.02*d.Max))
		}
	}
	if len(s.free) == 0 || names != nil && len(s.free) != len(names) {
		return s, fmt.Errorf("free parameters %q: unknown or repeated name", names)
	}
	return s, nil
}

func (s fitSpace) origin() []float64 {
	x := make([]float64, len(s.free))
	for i, d := range s.free {
		if v := d.Value(s.base); d.Min > 0 {
			x[i] = math.Log(v)
		} else {
			x[i] = v / s.scale[i]
		}
	}
	return x
}

// profile at x, and a penalty for coordinates outside the ranges.
func (s fitSpace) profile(x []float64) (Profile, float64) {
	p, penalty := s.base, 0.0
	for i, d := range s.free {
		v := x[i] * s.scale[i]
		if d.Min > 0 {
			v = math.Exp(x[i])
		}
		inside := math.Max(d.Min, math.Min(d.Max, v))
		excess := (v - inside) / s.scale[i]
		penalty += excess * excess
		d.Set(&p, inside)
	}
	return p, penalty
}
