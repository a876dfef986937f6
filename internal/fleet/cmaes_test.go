package fleet

import (
	"math"
	"testing"
)

func TestEvolutionFindsMinima(t *testing.T) {
	functions := map[string]struct {
		f      func([]float64) float64
		evals  int
		within float64
	}{
		"sphere": {func(x []float64) float64 {
			s := 0.0
			for _, v := range x {
				s += (v - 3) * (v - 3)
			}
			return s
		}, 2000, 1e-6},
		"ill-scaled": {func(x []float64) float64 {
			s := 0.0
			for i, v := range x {
				s += math.Pow(1000, float64(i)/9) * (v - 3) * (v - 3)
			}
			return s
		}, 4000, 1e-4},
		"noisy": {func(x []float64) float64 {
			s := 0.0
			for i, v := range x {
				s += (v-3)*(v-3) + 0.001*math.Sin(1e5*v+float64(i))
			}
			return s
		}, 2000, 0.1},
	}
	for name, c := range functions {
		e := newEvolution(make([]float64, 10), 0.1, 1)
		least, n := math.Inf(1), 0
		for e.next(func(x []float64) (float64, bool) {
			if n++; n > c.evals {
				return 0, false
			}
			v := c.f(x)
			least = math.Min(least, v)
			return v, true
		}) {
		}
		if least > c.within {
			t.Errorf("%s: least %v after %d evaluations; want %v", name, least, c.evals, c.within)
		}
	}
}

// The first samples lie as far out as the step says.
func TestEvolutionBeginsWithItsStep(t *testing.T) {
	e := newEvolution(make([]float64, 20), 0.01, 1)
	squares, n := 0.0, 0
	e.next(func(x []float64) (float64, bool) {
		for _, v := range x {
			squares += v * v
			n++
		}
		return 0, true
	})
	if got := math.Sqrt(squares / float64(n)); math.Abs(got-0.01) > 0.002 {
		t.Errorf("steps of %v; want 0.01", got)
	}
}
