package fleet

import (
	"math"
	"math/rand/v2"
	"slices"
)

// evolution minimises a noisy, rugged function: CMA-ES with a diagonal
// covariance matrix (Ros and Hansen, 2008), with the constants of Hansen's
// tutorial (2016). Gonum's CMA-ES does not apply its step size to what it
// samples.
type evolution struct {
	rand  *rand.Rand
	mean  []float64
	sigma float64
	// scale is the square root of the covariance's diagonal; pathC and pathS are
	// the evolution paths of covariance and step size.
	scale, pathC, pathS []float64
	weights             []float64

	muEff, cc, cs, c1, cmu, damping, expected float64
	generation                                int
}

func newEvolution(start []float64, step float64, seed uint64) *evolution {
	n := float64(len(start))
	e := &evolution{
		rand: rand.New(rand.NewPCG(seed, 1)), mean: slices.Clone(start), sigma: step,
		scale: slices.Repeat([]float64{1}, len(start)), pathC: make([]float64, len(start)), pathS: make([]float64, len(start)),
	}
	parents := e.population() / 2
	for i := range parents {
		e.weights = append(e.weights, math.Log(float64(parents)+0.5)-math.Log(float64(i)+1))
	}
	total, squares := sum(e.weights), 0.0
	for i := range e.weights {
		e.weights[i] /= total
		squares += e.weights[i] * e.weights[i]
	}
	e.muEff = 1 / squares
	e.cc = (4 + e.muEff/n) / (n + 4 + 2*e.muEff/n)
	e.cs = (e.muEff + 2) / (n + e.muEff + 5)
	separable := (n + 2) / 3 // a diagonal is learnt that much faster
	e.c1 = separable * 2 / ((n+1.3)*(n+1.3) + e.muEff)
	e.cmu = math.Min(1-e.c1, separable*2*(e.muEff-2+1/e.muEff)/((n+2)*(n+2)+e.muEff))
	e.damping = 1 + 2*math.Max(0, math.Sqrt((e.muEff-1)/(n+1))-1) + e.cs
	e.expected = math.Sqrt(n) * (1 - 1/(4*n) + 1/(21*n*n))
	return e
}

// population is how many samples a generation has.
func (e *evolution) population() int { return 4 + int(3*math.Log(float64(len(e.mean)))) }

// candidate is a sample: x = mean + sigma*y.
type candidate struct {
	x, y  []float64
	value float64
}

// next evaluates one generation and moves on; false once evaluate has had
// enough.
func (e *evolution) next(evaluate func([]float64) (float64, bool)) bool {
	all := make([]candidate, e.population())
	for i := range all {
		c := e.sample()
		var ok bool
		if c.value, ok = evaluate(c.x); !ok {
			return false
		}
		all[i] = c
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	e.update(all[:len(e.weights)])
	return true
}

func (e *evolution) sample() candidate {
	c := candidate{x: make([]float64, len(e.mean)), y: make([]float64, len(e.mean))}
	for i := range e.mean {
		c.y[i] = e.scale[i] * e.rand.NormFloat64()
		c.x[i] = e.mean[i] + e.sigma*c.y[i]
	}
	return c
}

// update moves mean, paths, covariance and step size towards the best.
func (e *evolution) update(best []candidate) {
	e.generation++
	norm := 0.0
	steps := make([]float64, len(e.mean))
	for i := range e.mean {
		for k, w := range e.weights {
			steps[i] += w * best[k].y[i]
		}
		e.mean[i] += e.sigma * steps[i]
		e.pathS[i] = (1-e.cs)*e.pathS[i] + math.Sqrt(e.cs*(2-e.cs)*e.muEff)*steps[i]/e.scale[i]
		norm += e.pathS[i] * e.pathS[i]
	}
	norm = math.Sqrt(norm)
	// A step size on the rise must not stretch the covariance, too.
	settled := norm/math.Sqrt(1-math.Pow(1-e.cs, 2*float64(e.generation))) < (1.4+2/(float64(len(e.mean))+1))*e.expected
	lost := 0.0
	if !settled {
		lost = e.cc * (2 - e.cc)
	}
	for i := range e.mean {
		e.pathC[i] *= 1 - e.cc
		if settled {
			e.pathC[i] += math.Sqrt(e.cc*(2-e.cc)*e.muEff) * steps[i]
		}
		variance := e.scale[i] * e.scale[i]
		spread := 0.0
		for k, w := range e.weights {
			spread += w * best[k].y[i] * best[k].y[i]
		}
		e.scale[i] = math.Sqrt((1-e.c1-e.cmu)*variance + e.c1*(e.pathC[i]*e.pathC[i]+lost*variance) + e.cmu*spread)
	}
	e.sigma *= math.Exp(e.cs / e.damping * (norm/e.expected - 1))
}
