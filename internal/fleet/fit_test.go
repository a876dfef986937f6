package fleet

import (
	"math"
	"testing"
	"time"
)

// Measurements made by the model itself must lead back to its parameters.
func TestFitFindsWhatMadeTheMeasurements(t *testing.T) {
	truth := Published()
	truth.StepBase *= 1.4
	o := CompareOptions{
		Profile:      truth,
		Measurements: []Measurement{{PrefixTokens: 1024, Concurrency: 16, Setting: recompute, RequestsPerSecond: 1}},
		Seeds:        []uint64{1},
		Duration:     30 * time.Second,
	}
	c, err := Compare(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Measurements[0].RequestsPerSecond = c.Runs[0].Simulated.RequestsPerSecond
	o.Profile = Published()
	calls := 0
	p, loss, err := Fit(FitOptions{
		Compare: o, Free: []string{"stepBase"}, Evaluations: 150, Seed: 1,
		Progress: func(n int, _ float64, _ Profile) { calls = n },
	})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.StepBase/truth.StepBase-1) > 0.03 || loss > 1 {
		t.Errorf("step base %v with loss %v; want %v", p.StepBase, loss, truth.StepBase)
	}
	if calls < 20 || calls > 170 {
		t.Errorf("%d evaluations for a bound of 150", calls)
	}
}

func TestFitRefusals(t *testing.T) {
	o := FitOptions{Compare: CompareOptions{Profile: Published(), Seeds: []uint64{1}}, Evaluations: 1}
	o.Free = []string{"turbo"}
	if _, _, err := Fit(o); err == nil {
		t.Error("an unknown parameter was accepted")
	}
	o.Free, o.Evaluations = nil, 0
	if _, _, err := Fit(o); err == nil {
		t.Error("no evaluations were accepted")
	}
	o.Evaluations, o.Compare.Seeds = 1, nil
	if _, _, err := Fit(o); err == nil {
		t.Error("no seeds were accepted")
	}
}
