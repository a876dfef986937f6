package tuner

import (
	"math"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// promising makes samples from which the cost curves promise a gain by restoring
// requests with 512 to 1024 reusable tokens, which the incumbent 1024+8
// recomputes: share is that part of the end-to-end time. Probes show the restore.
func promising(share float64) func(*Sample, store.Params) {
	n := 0
	return func(s *Sample, _ store.Params) {
		n++
		const recomputed, probes, tokens, slope = 100, 4, 700, 1e-4
		batch := 1 + 0.5*s.Signals.RunningSeconds/s.Signals.Seconds/float64(s.Signals.Engines)
		gain := share * s.Signals.E2ESeconds / (recomputed + probes) // seconds a request
		restore := slope*tokens*batch - gain
		for i, computed := range []float64{1000, 2000, 3000} {
			ttft := 0.05 + slope*computed
			s.Plugin.Curve = append(s.Plugin.Curve, CurvePoint{Reusable: 512, Computed: 1024 * float64(i+1), Finished: recomputed / 3,
				TTFTSeconds: recomputed / 3 * ttft, ComputedTokens: recomputed / 3 * computed})
		}
		s.Plugin.Curve = append(s.Plugin.Curve,
			CurvePoint{Reusable: 512, Started: recomputed, ReusableTokens: recomputed * tokens},
			CurvePoint{Load: true, Reusable: 512, Started: probes, ReusableTokens: probes * tokens, Finished: probes,
				TTFTSeconds: probes * (0.05 + slope*300 + restore*(1+0.1*math.Sin(float64(n)))), ComputedTokens: probes * 300})
	}
}

// Curves that go on promising what no trial confirms are believed less and less
// often: a resting fleet is not disturbed for ever.
func TestPromisesThatFailAreDoubted(t *testing.T) {
	w := newWorld(t, flat)
	w.change = promising(0.05)
	w.run(24 * time.Hour)
	var proposed []time.Duration
	for _, d := range w.decisions {
		if d.Kind == store.KindTrial && d.To.MinExternalReusableTokens < 1024 {
			proposed = append(proposed, d.Time.Sub(noon))
		}
	}
	if n := len(proposed); n == 0 || n > 12 {
		t.Errorf("%d trials of fewer tokens in 24 hours: %v", n, proposed)
	}
	if w.count(store.KindMove) > 2 {
		t.Errorf("%d moves on a flat surface", w.count(store.KindMove))
	}
}

func TestDoubtIsOfOneSense(t *testing.T) {
	s := testSettings().Search
	c := newClimber(s, noon)
	more, fewer := direction{tokenMinimum, -1}, direction{tokenMinimum, 1}
	c.rejected(proposal{params: store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 8}, origin: fromModel, direction: more, predicted: 0.05}, s, noon, false)
	soon := noon.Add(time.Minute)
	for _, tc := range []struct {
		name string
		d    direction
		gain float64
		want bool
	}{
		{"the same again", more, 0.05, true},
		{"a looser gate promises the same", direction{queueLimit, 1}, 0.05, true},
		{"much more than failed", more, 0.12, false},
		{"the other way", fewer, 0.05, false},
		{"a stricter gate", direction{queueLimit, -1}, 0.05, false},
	} {
		if got := c.doubted(tc.d, soon, tc.gain); got != tc.want {
			t.Errorf("%s: doubted %v, want %v", tc.name, got, tc.want)
		}
	}
	if c.doubted(more, noon.Add(s.Explore), 0.05) {
		t.Error("the first doubt outlasts search.explore")
	}
	c.rejected(proposal{params: store.Params{MinExternalReusableTokens: 256, MaxWaitingRequests: 8}, origin: fromModel, direction: more, predicted: 0.05}, s, noon, false)
	if !c.doubted(more, noon.Add(3*s.Explore), 0.05) || c.doubted(more, noon.Add(4*s.Explore), 0.05) {
		t.Error("the second doubt, of a neighbour, does not last four times as long")
	}
}

// Every minute of waiting for a full block is a minute of the loss that the
// curves are sure of.
func TestSureCandidateStartsEarly(t *testing.T) {
	first := func(share float64) time.Duration {
		w := newWorld(t, flat)
		w.change = promising(share)
		w.run(30 * time.Minute)
		for _, d := range w.decisions {
			if d.Kind == store.KindTrial {
				return d.Time.Sub(noon)
			}
		}
		t.Fatalf("a promised gain of %.0f%% was not tried", 100*share)
		return 0
	}
	if sure, doubtful := first(0.2), first(0.015); sure >= doubtful {
		t.Errorf("a promise of 20%% was tried after %v, one of 1.5%% after %v", sure, doubtful)
	}
}

// A candidate that is likely to be better is not left after one block.
func TestLikelyCandidateStaysOn(t *testing.T) {
	longest := func(effect, noise float64) time.Duration {
		w := newWorld(t, func(p store.Params, _ time.Duration) float64 {
			if p.MinExternalReusableTokens < 1024 {
				return 2 * (1 - effect)
			}
			return 2
		})
		w.change = promising(0.04)
		w.noise = noise
		var run, most time.Duration
		for range 4 * 60 {
			before := w.count(store.KindMove)
			w.run(15 * time.Second)
			if run += 15 * time.Second; w.inForce() == w.baseline || w.count(store.KindMove) > before {
				run = 0
			}
			most = max(most, run)
		}
		return most
	}
	block := testSettings().Trial.Block
	if got := longest(0, 0.02); got > block+time.Minute {
		t.Errorf("a candidate without effect ran for %v at a stretch", got)
	}
	if got := longest(0.04, 0.05); got < block+time.Minute || got > 2*block+2*time.Minute {
		t.Errorf("a candidate that is 4%% better ran for %v at a stretch, want up to two blocks of %v", got, block)
	}
}

// Where noise hides what a neighbour could gain, nothing is explored.
func TestNoiseStopsExploring(t *testing.T) {
	w := newWorld(t, flat)
	w.noise = 0.2
	w.run(6 * time.Hour)
	if n := w.count(store.KindTrial); n != 0 {
		t.Errorf("%d trials that could not decide", n)
	}
}

// A change of cost at a workload whose best is in force is no reason to search.
func TestKnownWorkloadIsNotSearchedAgain(t *testing.T) {
	for _, known := range []bool{true, false} {
		w := newWorld(t, func(_ store.Params, at time.Duration) float64 {
			if at > 12*time.Hour {
				return 2.4
			}
			return 2
		})
		w.change = promising(0.001)
		w.run(12 * time.Hour)
		if !w.c.climber.Resting {
			t.Fatal("not at rest after 12 hours")
		}
		if !known {
			w.c.memory = nil
		}
		before := w.count(store.KindWake)
		w.run(30 * time.Minute)
		if woken := w.count(store.KindWake) > before; woken == known {
			t.Errorf("known workload %v: woken %v", known, woken)
		}
	}
}

// In a burst completed requests lag behind their prompts: that is no other
// workload. Longer prompts are, whatever is in flight.
func TestOtherWorkload(t *testing.T) {
	calm := Signals{Requests: 300, FirstTokens: 300, Prompt: 300 * 4000, RunningSeconds: 60}
	for _, tc := range []struct {
		name string
		now  Signals
		want bool
	}{
		{"a burst begins", Signals{Requests: 200, FirstTokens: 500, Prompt: 500 * 4000, RunningSeconds: 600}, false},
		{"longer prompts", Signals{Requests: 300, FirstTokens: 300, Prompt: 300 * 8000, RunningSeconds: 60}, true},
		{"shorter prompts", Signals{Requests: 300, FirstTokens: 300, Prompt: 300 * 2000, RunningSeconds: 60}, true},
		{"too few to tell", Signals{Requests: 9, FirstTokens: 9, Prompt: 9 * 8000}, false},
		{"nothing known", Signals{}, false},
	} {
		if got := otherWorkload(calm, tc.now, 100); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// What was shown of an incumbent was shown for the requests of then: when they
// change, the initial thresholds need no proof of a gain, and a loss keeps them out.
func TestUnprovenIncumbentGoesHome(t *testing.T) {
	home := store.Params{MinExternalReusableTokens: 256, MaxWaitingRequests: 8}
	for _, tc := range []struct {
		name           string
		promise, truth float64 // gain of the initial thresholds
		longer         float64 // prompts after an hour
		want           int     // moves home
	}{
		{"other requests, nothing to gain", 0.002, 0, 2, 1},
		{"the same requests", 0.002, 0, 1, 0},
		{"the curves expect a loss", -0.05, 0, 2, 0},
		{"the trial shows a loss", 0.002, -0.1, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(p store.Params, _ time.Duration) float64 {
				if p.MinExternalReusableTokens < 1024 {
					return 2 * (1 - tc.truth)
				}
				return 2
			})
			promise := promising(tc.promise)
			w.change = func(s *Sample, p store.Params) {
				promise(s, p)
				if w.now.Sub(noon) > time.Hour {
					s.Signals.Prompt *= tc.longer
				}
			}
			w.c.settings.Initial, w.c.search.settings.Initial = home, home
			w.run(2 * time.Hour)
			moves := 0
			for _, d := range w.decisions {
				if d.Kind == store.KindRecover {
					moves++
				}
			}
			if moves != tc.want || tc.want > 0 && w.baseline.MinExternalReusableTokens >= 1024 {
				t.Errorf("%d moves home, want %d; in force at the end: %s", moves, tc.want, w.baseline)
				for _, d := range w.decisions {
					t.Logf("%v %s %s -> %s: %s", d.Time.Sub(noon), d.Kind, d.From, d.To, d.Reason)
				}
			}
		})
	}
}
