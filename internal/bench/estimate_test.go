package bench

import (
	"encoding/json"
	"math"
	"testing"
)

func near(t *testing.T, what string, got Number, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-4 {
		t.Errorf("%s = %v, want %v", what, float64(got), want)
	}
}

// Student's t with 4 degrees of freedom is 2.7764 at 97.5%, with 1 it is
// 12.7062 (any table).
func TestEstimate(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name       string
		values     []float64
		mean, ci95 float64
		n          int
	}{
		{"five", []float64{1, 2, 3, 4, 5}, 3, 2.776445 * math.Sqrt(2.5) / math.Sqrt(5), 5},
		{"two", []float64{10, 12}, 11, 12.706205, 2},
		{"no spread", []float64{7, 7, 7}, 7, 0, 3},
		{"unmeasured are left out", []float64{10, nan, 12, math.Inf(1)}, 11, 12.706205, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := EstimateOf(tt.values)
			near(t, "mean", e.Mean, tt.mean)
			near(t, "ci95", e.CI95, tt.ci95)
			if e.N != tt.n {
				t.Errorf("n = %d, want %d", e.N, tt.n)
			}
		})
	}
}

func TestEstimateWithoutSpreadOrValuesIsNull(t *testing.T) {
	tests := []struct {
		values []float64
		want   string
	}{
		{[]float64{3}, `{"mean":3,"ci95":null,"n":1}`},
		{[]float64{math.NaN()}, `{"mean":null,"ci95":null,"n":0}`},
		{nil, `{"mean":null,"ci95":null,"n":0}`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(EstimateOf(tt.values))
		if err != nil || string(got) != tt.want {
			t.Errorf("estimate of %v is %s, %v; want %s", tt.values, got, err, tt.want)
		}
	}
}

func TestVersusPairsSeeds(t *testing.T) {
	// Seeds differ a hundredfold, the policies by 10% in each: paired, there is
	// no doubt.
	var own, partners []Row
	for seed, e2e := range []float64{1, 10, 100} {
		partners = append(partners, Row{Policy: "a", Seed: uint64(seed), E2EMean: Number(e2e)})
		own = append(own, Row{Policy: "b", Seed: uint64(seed), E2EMean: Number(0.9 * e2e)})
	}
	v := versus(own, partners)
	near(t, "mean", v.Metrics["e2e_mean_s"].Mean, -0.1)
	near(t, "ci95", v.Metrics["e2e_mean_s"].CI95, 0)
	if n := v.Metrics["ttft_mean_s"].N; n != 0 {
		t.Errorf("0/0 counts as %d measured pairs", n)
	}
	if v.Policy != "a" {
		t.Errorf("versus %q, want a", v.Policy)
	}
}
