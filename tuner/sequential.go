package tuner

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

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
// from alternating blocks. Weighted least squares of the blocks' mean log cost
// on arm and time removes linear drift (with two blocks there is none to see,
// and the variance is inflated instead). sampleVariance is the long-run variance
// of one sample's log cost.
//
// The interval is a normal-mixture confidence sequence (Robbins 1970; Howard et
// al. 2021, eq. 14): it holds at all looks at once, so that a trial may be judged
// after every sample. ok is false while an arm has no samples.
func compare(blocks []block, sampleVariance, alpha float64) (store.Interval, bool) {
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
		return store.Interval{}, false
	}
	effect, variance, ok := armEffect(y, w, arm, at)
	if !ok {
		return store.Interval{}, false
	}
	half := min(confidenceHalfWidth(variance*sampleVariance, alpha), widest)
	return store.Interval{
		Estimate: math.Expm1(effect), Low: math.Expm1(effect - half), High: math.Expm1(effect + half),
		Confidence: 1 - alpha, N: candidates,
	}, true
}

// widest is the largest half width of an interval on the log scale, a factor of
// a thousand: beyond it nothing is known anyway.
const widest = 7

// armEffect solves the weighted least squares and returns the arm's coefficient
// and its variance in units of the variance of one sample.
func armEffect(y, w, arm, at []float64) (effect, variance float64, ok bool) {
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
		return 0, 0, false
	}
	var moments, beta mat.VecDense
	moments.MulVec(x.T(), weighted)
	beta.MulVec(&inverse, &moments)
	return beta.AtVec(1), inflation * inverse.At(1, 1), true
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
