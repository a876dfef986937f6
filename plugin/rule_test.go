package plugin

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
)

// Restoring 1024 tokens takes 0.1 s, computing them 0.05 s, and 0.05 s more for
// every two requests beside it.
var costs = store.Costs{
	BaseSeconds: 0.1, SecondsPerToken: 0.05 / 1024, Crowding: 0.5,
	Restores: []store.RestoreCost{{Reusable: 1024, Seconds: 0.1, Requests: 20}, {Reusable: 4096, Seconds: 2, Requests: 5}},
}

// withCosts adds costs that were fitted when the document was written, and makes
// its baseline go by them.
func withCosts(doc *store.Document, c store.Costs) *store.Document {
	c.FittedAt, c.ExpiresAt = doc.UpdatedAt, doc.UpdatedAt.Add(10*time.Minute)
	doc.Costs = &c
	doc.Baseline.LoadPolicy = store.Adaptive
	return doc
}

func weighingConfig() Config {
	c := threshold(64, 8)
	c.LoadPolicy = Adaptive
	c.Tuning = &Tuning{File: "parameters.json"}
	return c
}

// weighing is a policy that weighs requests from 64 tokens on by costs.
func weighing(t testing.TB, adjust func(*Config)) (*Policy, *clock, *prometheus.Registry) {
	t.Helper()
	c := weighingConfig()
	if adjust != nil {
		adjust(&c)
	}
	p, clk, reg := newPolicy(t, c)
	doc := withCosts(document(1, clk.now(), store.Params{MinExternalReusableTokens: 64, MaxWaitingRequests: 8}), costs)
	if err := p.Apply(doc); err != nil {
		t.Fatal(err)
	}
	return p, clk, reg
}

// poll is one look of an EPP at endpoint "a".
func poll(p *Policy, clk *clock, waiting, running int) {
	p.Observe("a", waiting, clk.now())
	p.ObserveRunning("a", running, clk.now())
}

func TestRule(t *testing.T) {
	for _, tc := range []struct {
		name             string
		blocks           int // of 64 tokens
		waiting, running int
		want             Reason
	}{
		{"dearer beside nobody", 16, 0, 0, ReasonRestoreDearer},
		{"as dear", 16, 0, 2, ReasonReusable},
		{"dearer for its size", 16, 0, 1, ReasonRestoreDearer},
		{"more tokens of a bucket", 31, 0, 1, ReasonReusable},
		{"a dear bucket", 64, 0, 2, ReasonRestoreDearer},
		{"a dear bucket in a crowd", 64, 0, 40, ReasonReusable},
		{"a size not known", 4, 0, 0, ReasonReusable},
		{"the minimum is a hard limit", 0, 0, 40, ReasonBelowMinimum},
		{"the gate is a hard limit", 64, 8, 40, ReasonQueueGate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, clk, _ := weighing(t, nil)
			poll(p, clk, tc.waiting, tc.running)
			if got := p.Decide(request("r", "a", tc.blocks)).Reason; got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// What the rule cannot judge, the thresholds decide, and that is counted.
func TestRuleFallsBack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		adjust  func(*Config)
		change  func(*Policy, *clock)
		reason  string // "" where the rule is not even asked
		clamped float64
	}{
		{name: "no costs", reason: "no_costs", change: func(p *Policy, clk *clock) {
			d := document(2, clk.now(), small)
			d.Baseline.LoadPolicy = store.Adaptive
			_ = p.Apply(d)
		}},
		{name: "costs expired", reason: "expired", change: func(p *Policy, clk *clock) { clk.advance(10 * time.Minute) }},
		{name: "document too old for the configuration", reason: "expired",
			adjust: func(c *Config) { c.Tuning.MaxAge = time.Minute }, change: func(p *Policy, clk *clock) { clk.advance(time.Minute) }},
		{name: "no running requests known", reason: "queues", change: func(p *Policy, clk *clock) {
			clk.advance(time.Second)
			p.Observe("a", 0, clk.now())
		}},
		{name: "threshold document", change: func(p *Policy, clk *clock) { _ = p.Apply(document(2, clk.now(), small)) }},
		{name: "not permitted", adjust: func(c *Config) { c.LoadPolicy = Threshold }, clamped: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, clk, reg := weighing(t, tc.adjust)
			poll(p, clk, 0, 0)
			if tc.change != nil {
				tc.change(p, clk)
			}
			if tc.reason != "queues" {
				poll(p, clk, 0, 0)
			}
			if got := p.Decide(request("r", "a", 16)).Reason; got != ReasonReusable {
				t.Errorf("%v, want reusable", got)
			}
			if got := sum(t, reg, "selective_kv_rule_fallbacks_total"); (got == 1) != (tc.reason != "") {
				t.Errorf("%v fallbacks are counted", got)
			}
			if tc.reason != "" && value1(t, reg, "selective_kv_rule_fallbacks_total", "reason", tc.reason) != 1 {
				t.Errorf("none is counted for %s", tc.reason)
			}
			if got := value1(t, reg, "selective_kv_clamped", "arm", "baseline"); got != tc.clamped {
				t.Errorf("clamped is %v", got)
			}
		})
	}
}

func TestCostsState(t *testing.T) {
	p, clk, reg := weighing(t, nil)
	clk.advance(9 * time.Minute)
	if value1(t, reg, "selective_kv_costs", "state", "fresh") != 1 || sum(t, reg, "selective_kv_costs_age_seconds") != 540 {
		t.Errorf("in force: %+v", p.InForce())
	}
	if sum(t, reg, "selective_kv_adaptive_permitted") != 1 {
		t.Error("adaptive is not permitted")
	}
	clk.advance(time.Minute)
	if value1(t, reg, "selective_kv_costs", "state", "expired") != 1 {
		t.Errorf("in force: %+v", p.InForce())
	}
}

// A candidate that weighs is compared with a baseline that does not.
func TestRuleAsAnArm(t *testing.T) {
	p, clk, _ := weighing(t, nil)
	doc := withCosts(document(2, clk.now(), small), costs)
	doc.Baseline.LoadPolicy = store.Threshold
	withTrial(doc, store.Params{MinExternalReusableTokens: 64, MaxWaitingRequests: 8, LoadPolicy: store.Adaptive}, all)
	if err := p.Apply(doc); err != nil {
		t.Fatal(err)
	}
	poll(p, clk, 0, 0)
	if d := p.Decide(request("r", "a", 16)); d.Reason != ReasonRestoreDearer || d.Arm != store.ArmCandidate {
		t.Errorf("candidate: %v of %s", d.Reason, d.Arm)
	}
	clk.advance(time.Hour)
	poll(p, clk, 0, 0)
	if d := p.Decide(request("r", "a", 16)); d.Reason != ReasonReusable || d.Arm != store.ArmBaseline {
		t.Errorf("after the trial: %v of %s", d.Reason, d.Arm)
	}
}

// What is withheld is probed, so that what it costs stays known.
func TestRuleProbes(t *testing.T) {
	p, clk, _ := weighing(t, func(c *Config) { c.ProbeFraction = 0.1 })
	poll(p, clk, 0, 0)
	probes := 0
	for i := range 2000 {
		switch d := p.Decide(request(time.Duration(i).String(), "a", 16)); d.Reason {
		case ReasonProbeRestoreDearer:
			probes++
		case ReasonRestoreDearer:
		default:
			t.Fatal(d.Reason)
		}
	}
	if probes < 150 || probes > 250 {
		t.Errorf("%d of 2000 are probed, want a tenth", probes)
	}
}

// An engine where restores have turned dear is spared although the pool's curves
// do not show it yet, and tried again when that is long ago.
func TestRestoresCorrectTheCurves(t *testing.T) {
	const base, computed = 100 * time.Millisecond, 0
	p, clk, reg := weighing(t, nil)
	restore := func(took time.Duration) Reason {
		poll(p, clk, 0, 4)
		d := p.Decide(request("r", "a", 16))
		if d.Action == Load {
			p.ObserveFirstToken(d, base+took, computed)
		}
		clk.advance(time.Second)
		return d.Reason
	}
	for range 20 {
		if got := restore(100 * time.Millisecond); got != ReasonReusable {
			t.Fatalf("as expected: %v", got)
		}
	}
	for range 3 {
		restore(2 * time.Second)
	}
	if got := restore(2 * time.Second); got != ReasonRestoreDearer {
		t.Errorf("after slow restores: %v, factor %v", got, sum(t, reg, "selective_kv_endpoint_restore_factor"))
	}
	clk.advance(5 * time.Minute)
	if got := restore(0); got != ReasonReusable {
		t.Errorf("long after: %v", got)
	}
	p.Observe("b", 0, clk.now())
	p.ObserveRunning("b", 4, clk.now())
	if got := p.Decide(request("r", "b", 16)).Reason; got != ReasonReusable {
		t.Errorf("another engine: %v", got)
	}
}

// A collapse in which no restore finishes must not hide itself; a request that
// was given up is none.
func TestRestoresThatDoNotFinish(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after func(*Policy, Decision)
		want  Reason
	}{
		{"wait", func(*Policy, Decision) {}, ReasonRestoreDearer},
		{"given up", func(p *Policy, d Decision) { p.Abandon(d) }, ReasonReusable},
		{"finished without known tokens", func(p *Policy, d Decision) { p.ObserveFirstToken(d, time.Second, -1) }, ReasonReusable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, clk, _ := weighing(t, nil)
			for range 10 {
				poll(p, clk, 0, 4)
				if d := p.Decide(request("r", "a", 16)); d.Action == Load {
					tc.after(p, d)
				}
				clk.advance(time.Second)
			}
			poll(p, clk, 0, 4)
			if got := p.Decide(request("r", "a", 16)).Reason; got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			clk.advance(2 * time.Minute) // a missed end is forgotten
			poll(p, clk, 0, 4)
			if got := p.Decide(request("r", "a", 16)).Reason; got != ReasonReusable {
				t.Errorf("two minutes later: %v", got)
			}
		})
	}
}

func TestObserveRunningRefuses(t *testing.T) {
	p, clk, reg := weighing(t, nil)
	p.Observe("a", 0, clk.now())
	p.ObserveRunning("a", -1, clk.now())
	p.ObserveRunning("a", 1, clk.now().Add(time.Hour))
	p.ObserveRunning("a", 1, time.Time{})
	p.ObserveRunning("unknown", 1, clk.now())
	if value1(t, reg, "selective_kv_samples_refused_total", "reason", "negative_running") != 1 || value1(t, reg, "selective_kv_samples_refused_total", "reason", "future") != 1 {
		t.Error("refused samples are not counted")
	}
	p.Decide(request("r", "a", 16))
	if value1(t, reg, "selective_kv_rule_fallbacks_total", "reason", "queues") != 1 {
		t.Error("a refused sample is used")
	}
}

func TestRuleDoesNotAllocate(t *testing.T) {
	p, clk, _ := weighing(t, nil)
	r := request("r", "a", 16)
	for _, running := range []int{0, 8} { // dearer, and restored
		poll(p, clk, 0, running)
		if n := testing.AllocsPerRun(100, func() {
			d := p.Decide(r)
			p.ObserveRunning("a", running, clk.now())
			p.ObserveFirstToken(d, time.Second, 256)
			p.Abandon(d)
		}); n != 0 {
			t.Errorf("%d running: %v allocations, want 0", running, n)
		}
	}
}
