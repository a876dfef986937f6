package tuner

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/kvtuner/kvtuner/store"
)

// A block is one arm's stretch of a switchback trial: the logarithms of the
// costs of its judged samples. Logarithms make differences relative.
type block struct {
	candidate bool
	logCosts  []float64
}

// mixing is the scale of effects the sequential test is tuned to: its interval
// is narrowest for effects of about this relative size. Its error rate holds
// whatever the value.
const mixing = 0.08

// soloInflation multiplies the variance of a comparison that cannot separate
// drift from effect because the candidate has been seen only after the
// incumbent, not between two of its blocks.
const soloInflation = 2

// compare estimates the relative cost of the candidate against the incumbent
// from alternating blocks, on the log scale. Weighted least squares of the
// blocks' mean log cost on arm and time removes linear drift (with two blocks
// there is none to see, and the variance is inflated instead). sampleVariance is
// the long-run variance of one sample's log cost; if the blocks of an arm differ
// among themselves by more than it explains, the workload has changed under the
// trial, and that variance counts. ok is false while an arm has no samples.
func compare(blocks []block, sampleVariance float64) (estimate, bool) {
	var y, w, arm, at []float64
	candidates, elapsed := 0, 0.0
	for _, b := range blocks {
		n := float64(len(b.logCosts))
		if n == 0 {
			continue
		}
		y = append(y, stat.Mean(b.logCosts, nil))
		w = append(w, n)
		at = append(at, elapsed+n/2)
		elapsed += n
		arm = append(arm, 0)
		if b.candidate {
			arm[len(arm)-1] = 1
			candidates++
		}
	}
	if candidates == 0 || candidates == len(y) {
		return estimate{}, false
	}
	effect, variance, residual, ok := armEffect(y, w, arm, at)
	if math.IsNaN(effect) || math.IsInf(effect, 0) {
		return estimate{}, false
	}
	if ok && len(y) > 3 && residual > changed*sampleVariance {
		// The workload has changed since before the trial: judge what came after.
		if e, r, v, ok := armEffect(y[1:], w[1:], arm[1:], at[1:]); ok && v < residual {
			effect, variance, residual = e, r, v
		}
	}
	return estimate{mean: effect, variance: variance * max(sampleVariance, residual), blocks: candidates}, ok
}

// changed is the ratio of residual to expected variance beyond which the blocks
// are said not to belong together.
const changed = 4

// estimate of the log ratio of the candidate's cost to the incumbent's.
type estimate struct {
	mean, variance float64
	blocks         int // of the candidate
}

// with a prior, as precision-weighted mean: what the requests themselves have
// shown before the trial.
func (e estimate) with(prior estimate) estimate {
	if prior.variance <= 0 {
		return e
	}
	precision := 1/e.variance + 1/prior.variance
	return estimate{mean: (e.mean/e.variance + prior.mean/prior.variance) / precision, variance: 1 / precision, blocks: e.blocks}
}

// interval of the relative effect: a normal-mixture confidence sequence (Robbins
// 1970; Howard et al. 2021, eq. 14). It holds at all looks at once, so that a
// trial may be judged after every sample.
func (e estimate) interval(alpha float64) store.Interval {
	return e.around(confidenceHalfWidth(e.variance, alpha), alpha)
}

func (e estimate) around(half, alpha float64) store.Interval {
	half, middle := min(half, widest), min(max(e.mean, -widest), widest)
	return store.Interval{
		Estimate: math.Expm1(middle), Low: math.Expm1(middle - half), High: math.Expm1(middle + half),
		Confidence: 1 - alpha, N: e.blocks,
	}
}

// credible interval of the relative effect under a normal posterior, one-sided
// at alpha. Unlike a confidence sequence it rests on the prior being right, which
// modelError allows for.
func (e estimate) credible(alpha float64) store.Interval {
	return e.around(distuv.UnitNormal.Quantile(1-alpha)*math.Sqrt(e.variance), alpha)
}

// widest is the largest half width of an interval on the log scale, a factor of
// a thousand: beyond it nothing is known anyway.
const widest = 7

// armEffect solves the weighted least squares. It returns the arm's coefficient,
// its variance in units of the variance of one sample, and the residual mean
// square, which estimates that variance from the blocks alone (0 with no block
// to spare).
func armEffect(y, w, arm, at []float64) (effect, variance, residual float64, ok bool) {
	columns := 3
	inflation := 1.0
	if len(y) < 3 {
		columns, inflation = 2, soloInflation
	}
	x := mat.NewDense(len(y), columns, nil)
	weighted := mat.NewVecDense(len(y), nil)
	for i := range y {
		root := math.Sqrt(w[i])
		row := []float64{root, root * arm[i], root * at[i]}
		x.SetRow(i, row[:columns])
		weighted.SetVec(i, root*y[i])
	}
	var gram, inverse mat.Dense
	gram.Mul(x.T(), x)
	if err := inverse.Inverse(&gram); err != nil {
		return 0, 0, 0, false
	}
	var moments, beta, fitted mat.VecDense
	moments.MulVec(x.T(), weighted)
	beta.MulVec(&inverse, &moments)
	fitted.MulVec(x, &beta)
	fitted.SubVec(&fitted, weighted)
	if spare := len(y) - columns; spare > 0 {
		residual = mat.Dot(&fitted, &fitted) / float64(spare)
	}
	return beta.AtVec(1), inflation * inverse.At(1, 1), residual, true
}

// confidenceHalfWidth of a normal-mixture confidence sequence for an estimate
// with the given variance.
func confidenceHalfWidth(variance, alpha float64) float64 {
	m := mixing * mixing
	return math.Sqrt(variance * (variance + m) / m * math.Log((variance+m)/(variance*alpha*alpha)))
}

// varianceFloor is the least standard deviation credited to one sample's log
// cost: 1%.
const varianceFloor = 0.01 * 0.01

// longRunVariance is the variance of one sample's log cost, inflated so that
// dividing it by n gives the variance of a mean of n successive samples that
// follow an AR(1) process: var * (1+r)/(1-r). The lag-one correlation r is
// clipped to [0, 0.6]: short series estimate it badly.
func longRunVariance(logCosts []float64) float64 {
	if len(logCosts) < 3 {
		return varianceFloor
	}
	_, variance := stat.MeanVariance(logCosts, nil)
	r := stat.Correlation(logCosts[:len(logCosts)-1], logCosts[1:], nil)
	if math.IsNaN(r) {
		r = 0
	}
	r = min(max(r, 0), 0.6)
	return max(variance*(1+r)/(1-r), varianceFloor)
}

// pooledVariance is the larger of the incumbent's long-run variance and that
// within the blocks: an arm near collapse is noisier than the other, and the
// test must not borrow the calmer one's confidence.
func pooledVariance(incumbent []float64, blocks []block) float64 {
	v := longRunVariance(incumbent)
	sum, df := 0.0, 0.0
	for _, b := range blocks {
		if len(b.logCosts) < 2 {
			continue
		}
		_, within := stat.MeanVariance(b.logCosts, nil)
		n := float64(len(b.logCosts) - 1)
		sum += within * n
		df += n
	}
	if df >= 4 {
		v = max(v, sum/df)
	}
	return v
}
