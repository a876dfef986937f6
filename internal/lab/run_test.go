package lab

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}

func run(t *testing.T, p Policy, seed uint64, adjust func(*tuner.Settings), phases ...string) Outcome {
	t.Helper()
	r := Run{Policy: p, Seed: seed, Adjust: adjust}
	for _, name := range phases {
		s, err := fleet.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		r.Phases = append(r.Phases, Phase{Scenario: s, Duration: 30 * time.Minute})
	}
	o, err := r.Do(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Weighing each request needs no trial to spare a slow storage: within minutes the
// requests in flight have shown what restoring costs.
func TestAdaptiveHelpsWithSlowStorage(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"8k-c32-slow-storage", "mixed-c64-slow-storage"} {
		a, b := run(t, Adaptive(start), 1, nil, scenario), run(t, Static(start), 1, nil, scenario).Stats
		if ratio := a.Stats.TTFTMean / b.TTFTMean; ratio > 0.6 {
			t.Errorf("%s: mean TTFT is %.2f of the static rule's, want 0.6 at most", scenario, ratio)
		}
		if ratio := a.Stats.E2EMean / b.E2EMean; ratio > 1 {
			t.Errorf("%s: mean end-to-end time is %.3f of the static rule's", scenario, ratio)
		}
		for _, d := range a.Decisions {
			if d.From.LoadPolicy != store.Adaptive && d.Kind != store.KindAdopt || d.To.LoadPolicy != store.Adaptive {
				t.Errorf("%s: %s from %s to %s", scenario, d.Kind, d.From, d.To)
			}
		}
	}
}

// The loop closes: with slow storage the tuner finds thresholds that take at
// least a quarter off the mean TTFT of the rule it started from, learning time
// included.
func TestTunedHelpsWithSlowStorage(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"8k-c32-slow-storage", "mixed-c64-slow-storage"} {
		var tuned, fixed fleet.Stats
		for seed := range uint64(2) {
			a, b := run(t, Tuned(start), seed, nil, scenario).Stats, run(t, Static(start), seed, nil, scenario).Stats
			tuned.TTFTMean += a.TTFTMean
			tuned.E2EMean += a.E2EMean
			fixed.TTFTMean += b.TTFTMean
			fixed.E2EMean += b.E2EMean
		}
		if ratio := tuned.TTFTMean / fixed.TTFTMean; ratio > 0.75 {
			t.Errorf("%s: mean TTFT is %.2f of the static rule's, want 0.75 at most", scenario, ratio)
		}
		if ratio := tuned.E2EMean / fixed.E2EMean; ratio > 1 {
			t.Errorf("%s: mean end-to-end time is %.3f of the static rule's", scenario, ratio)
		}
	}
}

// Where the rule it starts from is as good as any, the tuner does no harm.
func TestTunedDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"1k-c64", "8k-c64", "8k-c4", "8k-bursts"} {
		a, b := run(t, Tuned(start), 1, nil, scenario), run(t, Static(start), 1, nil, scenario)
		if ratio := a.Stats.E2EMean / b.Stats.E2EMean; ratio > 1.03 {
			t.Errorf("%s: mean end-to-end time is %.3f of the static rule's", scenario, ratio)
		}
	}
}

// From a bad start it recovers: the rule that never restores loses a quarter of
// the throughput where prefill is dear.
func TestTunedRecoversFromABadStart(t *testing.T) {
	t.Parallel()
	never := store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: 8}
	o := run(t, Tuned(never), 1, nil, "mixed-c64-dear-prefill", "mixed-c64-dear-prefill")
	fixed := run(t, Static(start), 1, nil, "mixed-c64-dear-prefill", "mixed-c64-dear-prefill")
	if ratio := o.Phases[1].Stats.E2EMean / fixed.Phases[1].Stats.E2EMean; ratio > 1.08 {
		t.Errorf("half an hour later mean end-to-end time is %.3f of 1024+8's; the path was %+v", ratio, o.Path)
	}
}

// Every change of what is in force has a record, written before it.
func TestPathAndRecordsAgree(t *testing.T) {
	t.Parallel()
	o := run(t, Tuned(start), 3, nil, "8k-c32-slow-storage", "mixed-c64")
	incumbent := start
	explained, predicted := map[store.Params]bool{start: true}, 0
	for _, d := range o.Decisions {
		if err := d.Validate(); err != nil {
			t.Errorf("record %s: %v", d.ID, err)
		}
		if d.From != incumbent {
			t.Errorf("record %s is about %s, the incumbent is %s", d.ID, d.From, incumbent)
		}
		explained[d.To] = true
		if d.Kind == store.KindTrial && strings.Contains(d.Reason, "cost curves predict") {
			predicted++
			if len(d.Evidence.Curves) == 0 {
				t.Errorf("record %s rests on cost curves that it does not show: %s", d.ID, d.Reason)
			}
		}
		if d.Kind == store.KindMove || d.Kind == store.KindRecover || d.Kind == store.KindRollback {
			incumbent = d.To
		}
	}
	if predicted == 0 {
		t.Error("no trial rests on cost curves")
	}
	for _, p := range o.Path {
		if !explained[p.Params] {
			t.Errorf("%s was in force at %v without a record", p.Params, p.At)
		}
	}
	if last := o.Path[len(o.Path)-1]; last.Arm == store.ArmBaseline && last.Params != incumbent {
		t.Errorf("%s is in force at the end, the records say %s", last.Params, incumbent)
	}
}

func TestSameSeedSameOutcome(t *testing.T) {
	t.Parallel()
	a, b := run(t, Tuned(start), 7, nil, "8k-c32-slow-storage"), run(t, Tuned(start), 7, nil, "8k-c32-slow-storage")
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two runs of one seed differ:\n%s", diff)
	}
}

func TestObserveModeLeavesTheFleetAlone(t *testing.T) {
	t.Parallel()
	o := run(t, Tuned(start), 1, func(s *tuner.Settings) { s.Mode = tuner.Observe }, "8k-c32-slow-storage")
	for _, p := range o.Path {
		if p.Params != start {
			t.Errorf("%s was in force at %v", p.Params, p.At)
		}
	}
	proposed := false
	for _, d := range o.Decisions {
		proposed = proposed || d.Kind == store.KindSuggest
	}
	if !proposed {
		t.Error("nothing was proposed")
	}
}

func TestParsePolicy(t *testing.T) {
	for _, name := range []string{"load", "recompute", "tuned", "static:1024+8", "static:inf+0", "static:1+0"} {
		p, err := ParsePolicy(name)
		if err != nil || p.String() != name {
			t.Errorf("ParsePolicy(%q) = %s, %v", name, p, err)
		}
	}
	for _, name := range []string{"", "static", "static:", "static:0+8", "static:8", "best"} {
		if p, err := ParsePolicy(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("ParsePolicy(%q) = %s, %v", name, p, err)
		}
	}
}

func TestRunRefusesNothingToDo(t *testing.T) {
	if _, err := (Run{Policy: AlwaysLoad()}).Do(context.Background()); err == nil {
		t.Error("a run without phases was accepted")
	}
	s, err := fleet.ByName("8k-c4")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (Run{Policy: AlwaysLoad(), Phases: []Phase{{s, time.Hour}}}).Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
}
