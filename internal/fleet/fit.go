package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	// Done are the losses an interrupted run of the same options had found, in
	// order. All but the first, which is checked, are taken as read, and the
	// search goes on after them exactly as it would have.
	Done []float64
	// Progress, if set, is told each evaluation.
	Progress func(FitProgress)
}

// FitProgress is a look at a search.
type FitProgress struct {
	// Evaluation is how many were made so far, this one included.
	Evaluation int
	// Loss of this evaluation, Least and Best of all.
	Loss, Least float64
	Best        Profile
	// Known tells that the loss is one of FitOptions.Done.
	Known bool
}

func (o FitOptions) validate() error {
	switch {
	case o.Evaluations < 1:
		return fmt.Errorf("%d evaluations; at least 1 is needed", o.Evaluations)
	case !(o.Step >= 0 && o.Step <= 1):
		return fmt.Errorf("step %v; want at most 1, a relative change", o.Step)
	case slices.ContainsFunc(o.Done, func(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }):
		return errors.New("a loss found earlier is no number from 0")
	}
	return nil
}

// Fit moves parameters, within their ranges, to where Comparison.Loss is
// least, by a seeded CMA-ES with common random numbers. It returns the best
// profile seen and its loss, also with an error or when ctx ends the search.
func Fit(ctx context.Context, o FitOptions) (Profile, float64, error) {
	if err := o.validate(); err != nil {
		return o.Compare.Profile, math.Inf(1), fmt.Errorf("fit: %w", err)
	}
	if err := o.Compare.Validate(); err != nil {
		return o.Compare.Profile, math.Inf(1), fmt.Errorf("fit: %w", err)
	}
	space, err := newFitSpace(o.Compare.Profile, o.Free)
	if err != nil {
		return o.Compare.Profile, math.Inf(1), fmt.Errorf("fit: %w", err)
	}
	if o.Step == 0 {
		o.Step = 0.1
	}
	s := search{ctx: ctx, options: o, space: space, best: o.Compare.Profile, least: math.Inf(1)}
	s.evaluate(space.origin())
	for e := newEvolution(space.origin(), o.Step, o.Seed); e.next(s.evaluate); {
	}
	return s.best, s.least, s.err
}

// search is a fit under way.
type search struct {
	ctx     context.Context
	options FitOptions
	space   fitSpace

	n     int
	best  Profile
	least float64
	err   error
}

// evaluate is the loss at x, with a penalty outside the ranges; false on an
// error or when all evaluations are made.
func (s *search) evaluate(x []float64) (float64, bool) {
	if s.err != nil || s.n >= s.options.Evaluations {
		return 0, false
	}
	p, outside := s.space.profile(x)
	known := s.n < len(s.options.Done)
	loss, err := s.loss(p, known)
	if err != nil {
		s.err = err
		return 0, false
	}
	if s.n++; loss < s.least {
		s.best, s.least = p, loss
	}
	if s.options.Progress != nil {
		s.options.Progress(FitProgress{Evaluation: s.n, Loss: loss, Least: s.least, Best: s.best, Known: known})
	}
	return loss + outside, true
}

// ErrOtherSearch refuses losses that were not found with these options and this
// model.
var ErrOtherSearch = errors.New("the losses found earlier are of another search")

func (s *search) loss(p Profile, known bool) (float64, error) {
	if known && s.n > 0 {
		return s.options.Done[s.n], nil
	}
	compare := s.options.Compare
	compare.Profile = p
	c, err := Compare(s.ctx, compare)
	if err != nil {
		return 0, err
	}
	if loss := c.Loss(); !known || loss == s.options.Done[0] {
		return loss, nil
	}
	return 0, fmt.Errorf("fit: %w: the base profile has a loss of %v here, %v there", ErrOtherSearch, c.Loss(), s.options.Done[0])
}

// fitSpace maps free parameters to coordinates in which a step of 0.1 is about
// 10%: logarithms where a parameter cannot be 0, else multiples of its start.
type fitSpace struct {
	base  Profile
	free  []Parameter
	scale []float64
}

func newFitSpace(base Profile, names []string) (fitSpace, error) {
	free, err := FreeParameters(names)
	if err != nil {
		return fitSpace{}, err
	}
	s := fitSpace{base: base, free: free}
	for _, d := range free {
		s.scale = append(s.scale, math.Max(d.Value(base), 0.02*d.Max))
	}
	return s, nil
}

// FreeParameters are those of the names, in the order of a file; nil is every
// fitted one. Whole numbers are facts of a deployment: no search moves them.
func FreeParameters(names []string) ([]Parameter, error) {
	var free []Parameter
	var allowed []string
	wanted := make(map[string]int)
	for _, name := range names {
		wanted[name]++
	}
	for _, d := range Parameters() {
		if !d.Whole {
			allowed = append(allowed, d.Name)
		}
		switch n := wanted[d.Name]; {
		case n > 1:
			return nil, fmt.Errorf("parameter %s is named twice", d.Name)
		case n == 1 && d.Whole:
			return nil, fmt.Errorf("parameter %s is a whole number, which a search cannot move: set it in the profile", d.Name)
		case n == 1 || names == nil && d.Source == FromFit:
			free = append(free, d)
		}
		delete(wanted, d.Name)
	}
	for _, name := range names {
		if wanted[name] > 0 {
			return nil, fmt.Errorf("parameter %s is not known; allowed: %s", clip(name), strings.Join(allowed, ", "))
		}
	}
	if len(free) == 0 {
		return nil, fmt.Errorf("no parameter is named; allowed: %s", strings.Join(allowed, ", "))
	}
	return free, nil
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
