package tuner

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

// showed is evidence of three minutes in which a computed token took 0.05 ms and a
// restore of 1024 or 4096 tokens so many seconds.
func showed(now time.Time, small, large float64) []evidence {
	const base, slope = 0.1, 5e-5
	var log []evidence
	for i := range 12 {
		e := evidence{at: now.Add(time.Duration(i-11) * 15 * time.Second),
			signals: Signals{Seconds: 15, Requests: 100, E2ESeconds: 300, RunningSeconds: 4 * 15 * 10, Engines: 4}}
		for _, computed := range []float64{256, 1024, 4096} {
			e.points = append(e.points, CurvePoint{Reusable: 0, Computed: computed, Started: 20, Finished: 20,
				ComputedTokens: 20 * computed, TTFTSeconds: 20 * (base + slope*computed)})
		}
		for reusable, seconds := range map[float64]float64{1024: small, 4096: large} {
			e.points = append(e.points, CurvePoint{Load: true, Reusable: reusable, Started: 5, ReusableTokens: 5 * 1.2 * reusable,
				Finished: 5, ComputedTokens: 5 * 256, TTFTSeconds: 5 * (base + slope*256 + seconds)})
		}
		log = append(log, e)
	}
	return log
}

// shows makes the tuner have seen such restores until now, and none from then on.
func (f *fixture) shows(small, large float64) {
	f.uncounted = true
	f.tuner.control.log = showed(f.now.Add(15*time.Second), small, large)
}

func adaptiveOn(s *Settings) { s.Search.Adaptive = AdaptiveOn }

func TestPublishesCosts(t *testing.T) {
	f := newFixture(t, adaptiveOn)
	f.steps(1)
	d := f.document()
	if d.Baseline.LoadPolicy != store.Adaptive || d.Costs != nil {
		t.Fatalf("at first: %+v", d)
	}
	f.shows(0.1, 0.4)
	f.steps(2)
	d = f.document()
	want := &store.Costs{
		FittedAt: f.now, ExpiresAt: f.now.Add(costsLease),
		BaseSeconds: 0.1, SecondsPerToken: 5e-5, Crowding: 0.5,
		Restores: []store.RestoreCost{
			{Reusable: 1024, Seconds: 0.1, StandardError: 0.00405, Requests: 55},
			{Reusable: 4096, Seconds: 0.4, StandardError: 0.0162, Requests: 55},
		},
	}
	if diff := cmp.Diff(want, d.Costs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if k := f.lastDecision().Kind; k != store.KindAdopt || len(f.journal.decisions) != 1 {
		t.Errorf("%d decisions, the last to %s: costs are no decision", len(f.journal.decisions), k)
	}
}

func TestWritesCostsAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*fixture)
		writes int64
	}{
		{"unchanged", func(f *fixture) { f.shows(0.1, 0.4) }, 0},
		{"within their error", func(f *fixture) { f.shows(0.1, 0.41) }, 0},
		{"materially changed", func(f *fixture) { f.shows(0.1, 0.8) }, 1},
		{"soon too old", func(f *fixture) { f.now = f.now.Add(costsRenew); f.shows(0.1, 0.4) }, 1},
		{"no more evidence", func(f *fixture) { f.tuner.control.log = nil }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, adaptiveOn)
			f.steps(1)
			f.shows(0.1, 0.4)
			f.steps(8) // settled, and costsEvery is over
			before := f.document().Revision
			settled := f.tuner.control.settled
			history := len(f.tuner.control.history)
			tc.change(f)
			f.steps(1)
			if got := f.document().Revision - before; got != tc.writes {
				t.Errorf("%d writes, want %d", got, tc.writes)
			}
			f.steps(2)
			if c := f.tuner.control; !c.settled.Equal(settled) || tc.name != "soon too old" && len(c.history) != history+3 {
				t.Errorf("a write of costs blanks samples out: settled %v then %v, %d samples then %d", settled, c.settled, history, len(c.history))
			}
		})
	}
}

func TestCostsAreNotWritten(t *testing.T) {
	for name, adjust := range map[string]func(*Settings){
		"off":     nil,
		"observe": func(s *Settings) { adaptiveOn(s); s.Mode = Observe },
		"try":     func(s *Settings) { s.Search.Adaptive = AdaptiveTry }, // before any trial
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, adjust)
			f.put(func(*store.Document) {})
			f.steps(1)
			before := f.document()
			for range 10 {
				f.shows(0.1, 0.4)
				f.steps(1)
			}
			if diff := cmp.Diff(before, f.document()); diff != "" {
				t.Errorf("written (-before +after):\n%s", diff)
			}
		})
	}
}

// What a trial's document has is not touched by a refresh within its block.
func TestCostsWithinATrial(t *testing.T) {
	f := newFixture(t, adaptiveOn)
	f.steps(1)
	f.shows(0.1, 0.4)
	f.steps(6)
	f.startTrial()
	trial := *f.document().Trial
	f.steps(3)
	acked := f.tuner.control.trial.acked
	before := f.document().Revision
	f.shows(0.2, 0.9)
	f.steps(1)
	d := f.document()
	if d.Revision == before || d.Trial == nil || *d.Trial != trial {
		t.Errorf("revision %d then %d, trial %+v then %+v", before, d.Revision, trial, d.Trial)
	}
	f.steps(1)
	if c := f.tuner.control; c.trial == nil || !c.trial.acked.Equal(acked) || acked.IsZero() {
		t.Errorf("the block is acknowledged anew: %+v", c.trial)
	}
}

// A refresh that fails, or only seems to, holds up nothing.
func TestRefreshThatFails(t *testing.T) {
	f := newFixture(t, adaptiveOn)
	f.steps(1)
	f.shows(0.1, 0.4)
	f.steps(8)
	before := f.document()

	f.docs.swapErr = errors.New("disk is full")
	f.shows(0.2, 0.9)
	if err := f.step(); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("error %v", err)
	}
	if f.tuner.pending != (action{}) {
		t.Error("a refresh stays pending")
	}
	f.docs.swapErr, f.docs.afterSwap = nil, errors.New("connection reset")
	if err := f.step(); err == nil {
		t.Error("no error")
	}
	f.docs.afterSwap = nil
	f.steps(1)
	d := f.document()
	if d.Revision != before.Revision+1 || d.Costs.Restores[1].Seconds != 0.9 {
		t.Errorf("document %+v", d)
	}
	kinds := func(d store.Decision) bool { return d.Kind == store.KindDrift }
	if slices.ContainsFunc(f.journal.decisions, kinds) || f.tuner.control.revision != d.Revision {
		t.Error("its own refresh is taken for someone else's document")
	}
	f.restart()
	f.steps(1)
	if got := f.document(); got.Baseline != d.Baseline {
		t.Errorf("after a restart: %+v", got)
	}
}

// Another hand between two refreshes is noticed.
func TestRefreshRespectsAnotherWriter(t *testing.T) {
	f := newFixture(t, adaptiveOn)
	f.steps(1)
	f.shows(0.1, 0.4)
	f.steps(8)
	theirs := store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 2, LoadPolicy: store.Adaptive}
	f.put(func(d *store.Document) { d.Baseline, d.Costs = theirs, nil })
	f.shows(0.2, 0.9)
	f.steps(4)
	if d := f.document(); d.Baseline != theirs || d.Costs == nil {
		t.Errorf("document %+v", d)
	}
	if d := f.journal.decisions[len(f.journal.decisions)-1]; d.Kind != store.KindDrift {
		t.Errorf("decision %+v", d)
	}
}

func TestOffTakesAdaptiveBack(t *testing.T) {
	f := newFixture(t, nil)
	f.put(func(d *store.Document) { d.Baseline.LoadPolicy = store.Adaptive })
	f.steps(1)
	if d := f.document(); d.Baseline.LoadPolicy != store.Threshold || f.lastDecision().From.LoadPolicy != store.Adaptive {
		t.Errorf("document %+v, decision %+v", d, f.lastDecision())
	}
}

// A dear bucket is withheld by the rule already: under it no minimum gains by
// keeping it out, and a lower one only adds what it would restore.
func TestPredictUnderTheRule(t *testing.T) {
	m, ok := fitCurves(showed(noon, 0.1, 5), noon, DefaultSettings().Search)
	if !ok {
		t.Fatal("no fit")
	}
	parse := func(s string) store.Params {
		p, err := store.ParseParams(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	gain := func(from, to string) float64 { return m.predict(parse(from), parse(to)).gain }
	for _, tc := range []struct {
		from, to string
		sign     float64
	}{
		{"1024+8", "inf+8", 1},
		{"1024+8", "1024+8+adaptive", 1},
		{"1024+8+adaptive", "1024+8", -1},
		{"1024+8+adaptive", "inf+8+adaptive", -1},
		{"inf+8+adaptive", "4096+8+adaptive", 0},
		{"inf+8+adaptive", "1024+8+adaptive", 1},
		{"inf+8", "4096+8", -1},
	} {
		if got := gain(tc.from, tc.to); got*tc.sign < 0 || (tc.sign == 0) != (got == 0) {
			t.Errorf("%s to %s: %v, want the sign of %v", tc.from, tc.to, got, tc.sign)
		}
	}
	if whole, never := gain("1024+8", "1024+8+adaptive"), gain("1024+8", "inf+8"); whole <= never {
		t.Errorf("adaptive gains %v, never restoring %v", whole, never)
	}
}

// The rule is tried against the thresholds like any other candidate, and wins
// where it is better.
func TestTriesAdaptive(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ratio float64
		want  store.LoadPolicy
	}{{"better", 0.9, store.Adaptive}, {"worse", 1.1, store.Threshold}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(p store.Params, _ time.Duration) float64 {
				if p.LoadPolicy == store.Adaptive {
					return 3 * tc.ratio
				}
				return 3
			})
			w.c.settings.Search.Adaptive = AdaptiveTry
			w.c.search.settings.Search.Adaptive = AdaptiveTry
			w.c.search.ladder = newLadder(store.DefaultBounds(), AdaptiveTry)
			w.change = func(s *Sample, _ store.Params) { s.Plugin.Curve = showed(s.To, 0.1, 0.1)[0].points }
			w.run(3 * time.Hour)
			if w.baseline.LoadPolicy != tc.want {
				t.Errorf("%s is the incumbent", w.baseline)
			}
			tried := func(d store.Decision) bool {
				return d.Kind == store.KindTrial && d.To.LoadPolicy == store.Adaptive
			}
			if !slices.ContainsFunc(w.decisions, tried) {
				t.Error("it was never tried")
			}
		})
	}
}

// Without costs a plugin is left with the thresholds: none is loosened beyond what
// the operator chose, on whatever evidence.
func TestAdaptiveKeepsTheInitialThresholds(t *testing.T) {
	w := newWorld(t, func(p store.Params, _ time.Duration) float64 {
		return 3 - 0.5*float64(p.MaxWaitingRequests)/64 - 100/float64(p.MinExternalReusableTokens)
	})
	w.c.settings.Search.Adaptive = AdaptiveOn
	w.c.search.settings.Search.Adaptive = AdaptiveOn
	w.c.search.ladder = newLadder(store.DefaultBounds(), AdaptiveOn)
	w.c.incumbent.LoadPolicy, w.baseline.LoadPolicy = store.Adaptive, store.Adaptive
	w.change = func(s *Sample, _ store.Params) { s.Plugin.Curve = showed(s.To, 0.001, 0.001)[0].points }
	w.run(12 * time.Hour)
	for _, d := range w.decisions {
		if d.To.MinExternalReusableTokens < 1024 || store.CompareWaiting(d.To.MaxWaitingRequests, 8) > 0 {
			t.Errorf("%s to %s", d.Kind, d.To)
		}
	}
	if len(w.decisions) < 3 {
		t.Errorf("only %d decisions", len(w.decisions))
	}
}

func TestAdaptiveThatIsNotPermitted(t *testing.T) {
	w := newWorld(t, func(store.Params, time.Duration) float64 { return 3 })
	w.c.incumbent.LoadPolicy, w.baseline.LoadPolicy = store.Adaptive, store.Adaptive
	w.change = func(s *Sample, _ store.Params) { s.Plugin.Adaptive = false }
	w.run(10 * time.Minute)
	if d := w.last(store.KindHold); d == nil || !strings.Contains(d.Reason, "loadPolicy") {
		t.Errorf("decision %+v", d)
	}
}
