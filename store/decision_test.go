package store_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

// decision is number n of pool, n minutes after exampleTime.
func decision(pool string, n int) store.Decision {
	at := exampleTime.Add(time.Duration(n) * time.Minute)
	incumbent := store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	return store.Decision{
		ID:       store.NewID(at, uint64(n)),
		Pool:     pool,
		Time:     at,
		Kind:     store.Kinds()[n%len(store.Kinds())],
		Mode:     store.ModeEnforce,
		Revision: int64(n + 1),
		From:     incumbent,
		To:       store.Params{MinExternalReusableTokens: store.Never},
		Reason:   "Mean end-to-end fell by 10% [6%, 14%] over 6 blocks.",
		Evidence: &store.Evidence{
			Verdict:      "better",
			Effect:       &store.Interval{Estimate: -0.10, Low: -0.14, High: -0.06, Confidence: 0.95, N: 6},
			Arms:         []store.ArmSummary{{Arm: store.ArmBaseline, Params: incumbent, Samples: 12, Requests: 340, Signals: map[string]float64{"ttft": 0.7}}},
			Alternatives: []store.Alternative{{Params: incumbent, Why: "the incumbent"}},
			Samples: []store.Sample{
				{Time: at, Arm: store.ArmBaseline, State: store.StateOK, Signals: map[string]float64{"ttft": 0.7}},
				{Time: at, Arm: store.ArmCandidate, State: store.StateUnknown, Why: "3 of 4 endpoints"},
			},
			Queries: []string{`sum(rate(vllm:request_success_total[30s]))`},
		},
	}
}

func TestDecisionRefused(t *testing.T) {
	for field, change := range map[string]func(*store.Decision){
		"id":                             func(d *store.Decision) { d.ID = "" },
		"pool":                           func(d *store.Decision) { d.Pool = "a b" },
		"time":                           func(d *store.Decision) { d.Time = time.Time{} },
		"kind":                           func(d *store.Decision) { d.Kind = "guess" },
		"mode":                           func(d *store.Decision) { d.Mode = "" },
		"revision":                       func(d *store.Decision) { d.Mode = store.ModeObserve },
		"from.minExternalReusableTokens": func(d *store.Decision) { d.Kind, d.From = store.KindMove, store.Params{} },
		"to.maxWaitingRequests":          func(d *store.Decision) { d.To.MaxWaitingRequests = -1 },
		"reason":                         func(d *store.Decision) { d.Reason = " " },
		"evidence.effect.low":            func(d *store.Decision) { d.Evidence.Effect.Low = math.Inf(-1) },
		"evidence.effect.estimate":       func(d *store.Decision) { d.Evidence.Effect.Estimate = 1 },
		"evidence.effect.confidence":     func(d *store.Decision) { d.Evidence.Effect.Confidence = 95 },
		"evidence.effect.n":              func(d *store.Decision) { d.Evidence.Effect.N = -1 },
		"evidence.arms[0].arm":           func(d *store.Decision) { d.Evidence.Arms[0].Arm = "a" },
		"evidence.arms[0].samples":       func(d *store.Decision) { d.Evidence.Arms[0].Samples = -1 },
		"evidence.arms[0].requests":      func(d *store.Decision) { d.Evidence.Arms[0].Requests = math.NaN() },
		"evidence.arms[0].signals.ttft":  func(d *store.Decision) { d.Evidence.Arms[0].Signals["ttft"] = math.NaN() },
		"evidence.arms[0].params.minExternalReusableTokens":         func(d *store.Decision) { d.Evidence.Arms[0].Params = store.Params{} },
		"evidence.alternatives[0].params.minExternalReusableTokens": func(d *store.Decision) { d.Evidence.Alternatives[0].Params = store.Params{} },
		"evidence.samples[0].signals.ttft":                          func(d *store.Decision) { d.Evidence.Samples[0].Signals["ttft"] = math.Inf(1) },
		"evidence.samples[1].signals":                               func(d *store.Decision) { d.Evidence.Samples[1].Signals = map[string]float64{"ttft": 0} },
		"evidence.samples[1].state":                                 func(d *store.Decision) { d.Evidence.Samples[1].State = "" },
		"evidence.samples[1].arm":                                   func(d *store.Decision) { d.Evidence.Samples[1].Arm = "" },
		"evidence.samples[1].time":                                  func(d *store.Decision) { d.Evidence.Samples[1].Time = time.Time{} },
	} {
		d := decision("pool", 1)
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&d)
		wantField(t, field, d.Validate(), field)
	}
}

func TestNewID(t *testing.T) {
	if got, want := store.NewID(exampleTime.In(time.FixedZone("", 3600)), 7), "20261130T161151Z-0007"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		earlier := time.Unix(rapid.Int64Range(0, 4_000_000_000).Draw(t, "time"), 0)
		later := earlier.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
		first := rapid.Uint64Range(0, 9998).Draw(t, "sequence")
		a, b := store.NewID(earlier, first), store.NewID(later, first+1)
		if strings.Compare(a, b) >= 0 {
			t.Fatalf("%s does not sort before %s", a, b)
		}
	})
}
