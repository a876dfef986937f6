package tuner

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

// trialOf draws blocks of an AR(1) noise, incumbent first, with an effect of the
// candidate and a drift a sample.
func trialOf(rng *rand.Rand, blocks, n int, effect, drift, sd, rho float64) []block {
	var out []block
	noise, at := 0.0, 0
	for i := range blocks {
		b := block{candidate: i%2 == 1}
		for range n {
			noise = rho*noise + math.Sqrt(1-rho*rho)*rng.NormFloat64()
			y := 1 + sd*noise + drift*float64(at)
			if b.candidate {
				y += effect
			}
			b.logCosts = append(b.logCosts, y)
			at++
		}
		out = append(out, b)
	}
	return out
}

// The error rate holds although one looks after every block: a candidate that
// is no better is rarely found better.
func TestCompareControlsTheErrorRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const trials, alpha, sd, rho = 2000, 0.05, 0.05, 0.3
	variance := sd * sd * (1 + rho) / (1 - rho)
	false_ := 0
	for range trials {
		all := trialOf(rng, 12, 6, 0, 0, sd, rho)
		for n := 2; n <= len(all); n++ {
			e, ok := compare(all[:n], variance)
			if i := e.interval(alpha); ok && (i.High < 0 || i.Low > 0) {
				false_++
				break
			}
		}
	}
	if rate := float64(false_) / trials; rate > alpha {
		t.Errorf("a trial without an effect was decided in %.3f of cases, above alpha %v", rate, alpha)
	}
}

func TestCompareFindsEffects(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const trials = 300
	found, covered := 0, 0
	effect := math.Log(0.85)
	for range trials {
		all := trialOf(rng, 9, 6, effect, 0.001, 0.05, 0.2)
		e, ok := compare(all, longRunVariance(all[0].logCosts))
		i := e.interval(0.02)
		if !ok {
			t.Fatal("nothing to compare")
		}
		if i.High < 0 {
			found++
		}
		if i.Low <= math.Expm1(effect) && math.Expm1(effect) <= i.High {
			covered++
		}
	}
	if found < trials*8/10 {
		t.Errorf("an effect of -15%% was found in %d of %d trials", found, trials)
	}
	if covered < trials*9/10 {
		t.Errorf("the interval covered the truth in %d of %d trials", covered, trials)
	}
}

// Linear drift does not pass for an effect.
func TestCompareRemovesDrift(t *testing.T) {
	all := trialOf(rand.New(rand.NewPCG(5, 6)), 5, 6, 0, 0.02, 1e-6, 0)
	e, ok := compare(all, varianceFloor)
	if !ok || math.Abs(e.mean) > 1e-4 {
		t.Errorf("estimate %+v, %v; want 0", e, ok)
	}
}

func TestCompareNeedsBothArms(t *testing.T) {
	for _, blocks := range [][]block{
		nil,
		{{logCosts: []float64{1, 2}}},
		{{logCosts: []float64{1, 2}}, {candidate: true}},
		{{candidate: true, logCosts: []float64{1}}},
	} {
		if i, ok := compare(blocks, 0.01); ok {
			t.Errorf("compare(%v) = %+v", blocks, i)
		}
	}
}

func TestLongRunVariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const rho, n = 0.4, 20000
	x := make([]float64, n)
	for i := 1; i < n; i++ {
		x[i] = rho*x[i-1] + 0.1*rng.NormFloat64()
	}
	variance := 0.01 / (1 - rho*rho)
	want := variance * (1 + rho) / (1 - rho)
	if got := longRunVariance(x); math.Abs(got/want-1) > 0.1 {
		t.Errorf("long-run variance %v, want about %v", got, want)
	}
	if got := longRunVariance([]float64{1, 1}); got != varianceFloor {
		t.Errorf("of two samples: %v, want the floor", got)
	}
}

func TestCUSUM(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var quiet cusum
	alarms := 0
	for range 20000 {
		if quiet.add(1 + 0.03*rng.NormFloat64()) {
			alarms++
		}
	}
	// At four samples a minute 20000 are three and a half days.
	if alarms > 12 {
		t.Errorf("%d alarms without a change", alarms)
	}
	var c cusum
	for range 30 {
		c.add(1 + 0.03*rng.NormFloat64())
	}
	for n := 1; ; n++ {
		if c.add(1.15 + 0.03*rng.NormFloat64()) {
			if n > 10 {
				t.Errorf("a shift of five deviations was noticed after %d samples", n)
			}
			return
		}
		if n > 50 {
			t.Fatal("a shift of five deviations was not noticed")
		}
	}
}

// How often a trial finds a candidate better that is not, looking after every
// sample as the controller does, with the variance estimated and not given. An
// explored candidate keeps the stated error rate. Of a predicted one the figures
// say what the prediction is worth: much, so that of candidates without effect, to
// which a move costs nothing, many are taken for better; one that does harm is
// found out by the trial's own estimate, and by probation.
func TestLookErrorRates(t *testing.T) {
	c := testSettings().Trial
	c.MinRequests = 1
	for _, tc := range []struct {
		name             string
		predicted, truth float64
		most             float64
	}{
		{"explored, no effect", 0, 0, 0.03},
		{"explored, 3% worse", 0, 0.03, 0.01},
		{"predicted 5%, no effect", 0.05, 0, 0.50},
		{"predicted 8%, no effect", 0.08, 0, 0.35},
		{"predicted 5%, 3% worse", 0.05, 0.03, 0.08},
		{"predicted 8%, 3% worse", 0.08, 0.03, 0.04},
	} {
		rng := rand.New(rand.NewPCG(11, 12))
		const trials = 600
		found := 0
		for range trials {
			if simulateLooks(rng, c, tc.predicted, math.Log1p(tc.truth)) == better {
				found++
			}
		}
		if rate := float64(found) / trials; rate > tc.most {
			t.Errorf("%s: found better in %.3f of trials, want %.2f at most", tc.name, rate, tc.most)
		} else {
			t.Logf("%s: found better in %.3f of trials", tc.name, rate)
		}
	}
}

func simulateLooks(rng *rand.Rand, c Trial, predicted, effect float64) verdict {
	t := &switchback{sums: map[store.Arm]Signals{}, judged: map[store.Arm]int{}, fullBlock: 6, proposal: proposal{origin: fromClimb}}
	if predicted > 0 {
		t.proposal = proposal{origin: fromModel, prior: prediction{gain: predicted, stderr: 0.01}.prior()}
	}
	all := trialOf(rng, 2*c.MaxBlocks+1, 6, effect, 0, 0.04, 0.3)
	incumbent := trialOf(rng, 1, 20, 0, 0, 0.04, 0.3)[0].logCosts
	for n, b := range all {
		t.onCandidate = b.candidate
		t.blocks = append(t.blocks, block{candidate: b.candidate})
		for _, x := range b.logCosts {
			t.judge(Sample{Signals: Signals{Requests: 100}}, x)
			if n == 0 {
				continue
			}
			if v, _ := t.look(c, incumbent); v != undecided {
				return v
			}
		}
	}
	return noDifference
}
