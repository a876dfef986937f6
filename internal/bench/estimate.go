package bench

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Estimate is a mean over seeds.
type Estimate struct {
	Mean Number `json:"mean"`
	// CI95 is half the width of the 95% confidence interval of the mean, from
	// Student's t with N-1 degrees of freedom; null for fewer than two values.
	CI95 Number `json:"ci95"`
	// N is the number of values that were measured.
	N int `json:"n"`
}

const confidence = 0.95

// EstimateOf values, one a seed. What was not measured (NaN, infinite) is left
// out.
func EstimateOf(values []float64) Estimate {
	var finite []float64
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
		}
	}
	n := len(finite)
	e := Estimate{Mean: Number(math.NaN()), CI95: Number(math.NaN()), N: n}
	if n > 0 {
		e.Mean = Number(stat.Mean(finite, nil))
	}
	if n > 1 {
		t := distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile((1 + confidence) / 2)
		e.CI95 = Number(t * stat.StdDev(finite, nil) / math.Sqrt(float64(n)))
	}
	return e
}

// relative is each value against its partner of the same seed: 0.1 is 10% more.
func relative(values, partners []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v/partners[i] - 1
	}
	return out
}
