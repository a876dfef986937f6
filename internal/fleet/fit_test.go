package fleet

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fitProblem is a measurement made by the model itself, with another step.
func fitProblem(t *testing.T) (FitOptions, Profile) {
	t.Helper()
	truth := Published()
	truth.StepBase *= 1.4
	o := CompareOptions{
		Profile:      truth,
		Measurements: []Measurement{{Report: "self", PrefixTokens: 1024, Concurrency: 16, Setting: recompute, RequestsPerSecond: 1}},
		Seeds:        []uint64{1},
		Duration:     20 * time.Second,
	}
	c, err := Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Measurements[0].RequestsPerSecond = c.Runs[0].Simulated.RequestsPerSecond
	o.Profile = Published()
	return FitOptions{Compare: o, Free: []string{"stepBase"}, Evaluations: 80, Seed: 1}, truth
}

// Measurements made by the model itself must lead back to its parameters.
func TestFitFindsWhatMadeTheMeasurements(t *testing.T) {
	o, truth := fitProblem(t)
	calls := 0
	o.Progress = func(p FitProgress) { calls = p.Evaluation }
	p, loss, err := Fit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.StepBase/truth.StepBase-1) > 0.03 || loss > 1 {
		t.Errorf("step base %v with loss %v; want %v", p.StepBase, loss, truth.StepBase)
	}
	if calls != 80 {
		t.Errorf("%d evaluations; want 80", calls)
	}
}

// A search that was interrupted and goes on from its losses takes the same way
// as one that was not.
func TestFitGoesOnWhereItStopped(t *testing.T) {
	o, _ := fitProblem(t)
	o.Free = []string{"stepBase", "prefillPerToken", "clientOverhead"}
	o.Evaluations = 40
	var whole []float64
	o.Progress = func(p FitProgress) { whole = append(whole, p.Loss) }
	want, wantLoss, err := Fit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var losses []float64
	o.Progress = func(p FitProgress) {
		if losses = append(losses, p.Loss); len(losses) == 17 {
			cancel()
		}
	}
	if _, _, err := Fit(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v; want the cancellation", err)
	}
	if d := cmp.Diff(whole[:17], losses); d != "" {
		t.Fatal(d)
	}
	o.Done = losses
	known := 0
	var again []float64
	o.Progress = func(p FitProgress) {
		again = append(again, p.Loss)
		if p.Known {
			known++
		}
	}
	got, loss, err := Fit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, again); d != "" || known != 17 {
		t.Errorf("%d losses taken as read; %s", known, d)
	}
	if d := cmp.Diff(want, got); d != "" || loss != wantLoss {
		t.Errorf("loss %v, want %v; %s", loss, wantLoss, d)
	}
}

func TestFitStaysInRange(t *testing.T) {
	o, _ := fitProblem(t)
	o.Compare.Measurements[0].RequestsPerSecond = 1000 // out of reach
	o.Evaluations = 60
	o.Step = 1
	o.Progress = func(p FitProgress) {
		if err := p.Best.Validate(); err != nil {
			t.Error(err)
		}
	}
	if p, _, err := Fit(t.Context(), o); err != nil || p.StepBase > 0.01 {
		t.Errorf("step base %v, %v; want it as short as can be", p.StepBase, err)
	}
}

func TestFitRefusals(t *testing.T) {
	for want, spoil := range map[string]func(*FitOptions){
		`parameter "turbo" is not known; allowed: cpuCacheGiB`: func(o *FitOptions) { o.Free = []string{"turbo"} },
		"parameter stepBase is named twice":                    func(o *FitOptions) { o.Free = []string{"stepBase", "stepBase"} },
		"parameter replicas is a whole number":                 func(o *FitOptions) { o.Free = []string{"stepBase", "replicas"} },
		"no parameter is named":                                func(o *FitOptions) { o.Free = []string{} },
		"0 evaluations":                                        func(o *FitOptions) { o.Evaluations = 0 },
		"at least one seed":                                    func(o *FitOptions) { o.Compare.Seeds = nil },
		"step 2":                                               func(o *FitOptions) { o.Step = 2 },
		"no number":                                            func(o *FitOptions) { o.Done = []float64{math.NaN()} },
		ErrOtherSearch.Error():                                 func(o *FitOptions) { o.Done = []float64{123} },
	} {
		o, _ := fitProblem(t)
		spoil(&o)
		if _, _, err := Fit(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
}

// Runs in which nothing finishes have a loss, too.
func TestLossOfNothingIsANumber(t *testing.T) {
	m := PublishedMatrix()[1:2]
	c, err := Compare(t.Context(), CompareOptions{Profile: Published(), Measurements: m, Seeds: []uint64{1}, Duration: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if loss := c.Loss(); !(loss > 100) || math.IsInf(loss, 0) {
		t.Errorf("loss %v; want a large number", loss)
	}
	// Two policies of which one finished nothing, either way.
	for _, rates := range [][2]float64{{0, 1}, {1, 0}, {0, 0}} {
		c := Comparison{Runs: []Run{
			{Published: Measurement{RequestsPerSecond: 1, Setting: loading}, Simulated: Stats{RequestsPerSecond: rates[0]}},
			{Published: Measurement{RequestsPerSecond: 2, Setting: recompute}, Simulated: Stats{RequestsPerSecond: rates[1]}},
		}}
		if loss := c.Loss(); !(loss > 100) || math.IsInf(loss, 0) {
			t.Errorf("loss %v of %v requests/s; want a large number", loss, rates)
		}
	}
}
