package plugin

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
)

// clock is a clock that tests set.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// newPolicy makes a policy of pool "p" with a registry of its own.
func newPolicy(t testing.TB, c Config) (*Policy, *clock, *prometheus.Registry) {
	t.Helper()
	clk, reg := newClock(), prometheus.NewPedanticRegistry()
	p, err := New(Options{Config: c, Pool: "p", Now: clk.now, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	return p, clk, reg
}

// threshold is a configuration of the given parameters.
func threshold(tokens store.Tokens, waiting int) Config {
	return Config{LoadPolicy: Threshold, MinExternalReusableTokens: tokens, MaxWaitingRequests: waiting}
}

// request is one with a prompt of blocks of 64 tokens held by the CPU tier.
func request(id, endpoint string, blocks int) *Request {
	return &Request{ID: id, Endpoint: endpoint, Evidence: Evidence{
		BlockSize: 64,
		Prompts:   []PrefixMatch{{CachedBlocks: blocks, ByTier: map[string]int{"cpu": blocks}}},
	}}
}

func TestDecideByThresholdAndGate(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	ask := func(blocks int) Reason { return p.Decide(request("r", "a", blocks)).Reason }
	if got := ask(15); got != ReasonBelowMinimum {
		t.Errorf("960 tokens: %v, want below_minimum", got)
	}
	if got := ask(16); got != ReasonReusable {
		t.Errorf("1024 tokens: %v, want reusable: the minimum is inclusive", got)
	}
	p.Observe("a", 8, clk.now())
	if got := ask(16); got != ReasonQueueGate {
		t.Errorf("8 waiting: %v, want queue_gate", got)
	}
}

func TestDecideByPolicy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   Decision
	}{
		{"preserve", Config{OffloadPolicy: Disable}, Decision{Action: Load, Reason: ReasonPreserved, DisableOffload: true}},
		{"disable", Config{LoadPolicy: Disable}, Decision{Action: Recompute, Reason: ReasonDisabled}},
		{"threshold", threshold(64, 0), Decision{Action: Load, Reason: ReasonReusable}},
		{"above the minimum", threshold(65, 0), Decision{Action: Recompute, Reason: ReasonBelowMinimum}},
		{"never load", threshold(store.Never, 0), Decision{Action: Recompute, Reason: ReasonBelowMinimum}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, _ := newPolicy(t, tt.config)
			tt.want.Arm, tt.want.Evidence, tt.want.ReusableTokens = store.ArmBaseline, true, 64
			got := p.Decide(request("r", "a", 1))
			got.metrics = nil
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestNoRequestReachesNever(t *testing.T) {
	p, _, _ := newPolicy(t, threshold(store.Never, 0))
	r := request("r", "a", 1<<62)
	r.Evidence.BlockSize = 1 << 62
	if got := p.Decide(r).Reason; got != ReasonBelowMinimum {
		t.Errorf("%v, want below_minimum", got)
	}
}

func TestDecideFailsOpen(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	p.Observe("a", 100, clk.now())
	unknown, invalid := request("r", "a", 16), request("r", "a", 16)
	unknown.Evidence.Prompts[0].ByTier = nil
	invalid.Evidence.Prompts[0].ByTier["nvme"] = -1
	for want, r := range map[Reason]*Request{
		ReasonNoEvidence:      unknown,
		ReasonInvalidEvidence: invalid,
	} {
		if got := p.Decide(r); got.Reason != want || got.Action != Load || got.Evidence {
			t.Errorf("%+v, want a load, %v", got, want)
		}
	}
}

func TestReasonsAreClosed(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reason(reasons) {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d has no name of its own: %q", r, r)
		}
		seen[r.String()] = true
	}
	if got := Reason(reasons).String(); got != "unknown" {
		t.Errorf("a reason that is none: %q", got)
	}
}

// probed counts the probes among n requests of a reason that is to be stopped.
func probed(p *Policy, n, blocks int) (probes map[Reason]int) {
	probes = map[Reason]int{}
	for i := range n {
		probes[p.Decide(request("request-"+strconv.Itoa(i), "a", blocks)).Reason]++
	}
	return probes
}

func TestProbes(t *testing.T) {
	const n, fraction = 20000, 0.05
	about := func(count int) bool { return count > n*fraction*0.85 && count < n*fraction*1.15 }
	c := threshold(1024, 8)
	c.ProbeFraction = fraction
	for _, tt := range []struct {
		name    string
		waiting int // -1 for no sample
		blocks  int
		probe   Reason
		stopped Reason
		want    bool
	}{
		{"below the minimum", 0, 1, ReasonProbeBelowMinimum, ReasonBelowMinimum, true},
		{"gate closed", 8, 16, ReasonProbeQueueGate, ReasonQueueGate, true},
		{"gate closed, at twice the limit", 16, 16, ReasonProbeQueueGate, ReasonQueueGate, true},
		{"far above the limit", 17, 16, ReasonProbeQueueGate, ReasonQueueGate, false},
		{"below the minimum, far above the limit", 17, 1, ReasonProbeBelowMinimum, ReasonBelowMinimum, false},
		{"queue unknown", -1, 1, ReasonProbeBelowMinimum, ReasonBelowMinimum, false},
		{"nothing to restore", 0, 0, ReasonProbeBelowMinimum, ReasonBelowMinimum, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, clk, _ := newPolicy(t, c)
			if tt.waiting >= 0 {
				p.Observe("a", tt.waiting, clk.now())
			}
			got := probed(p, n, tt.blocks)
			if got[tt.probe]+got[tt.stopped] != n || about(got[tt.probe]) != tt.want || !tt.want && got[tt.probe] > 0 {
				t.Errorf("%v, want probes: %v", got, tt.want)
			}
			if diff := cmp.Diff(got, probed(p, n, tt.blocks)); diff != "" {
				t.Errorf("the same requests are drawn otherwise (-first +second):\n%s", diff)
			}
		})
	}
}

func TestProbesWithoutLimitNeedNoQueue(t *testing.T) {
	c := threshold(store.Never, store.NoGate)
	c.ProbeFraction = 0.1
	p, _, _ := newPolicy(t, c)
	if got := probed(p, 1000, 1)[ReasonProbeBelowMinimum]; got == 0 {
		t.Error("no probes, want some: nothing else would show that restores are worth it again")
	}
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonBelowMinimum {
		t.Errorf("without an ID: %v, want below_minimum", got)
	}
}

func TestNoProbesByDefault(t *testing.T) {
	p, _, _ := newPolicy(t, threshold(1024, 0))
	if got := probed(p, 10000, 1); got[ReasonBelowMinimum] != 10000 {
		t.Errorf("%v, want no probes", got)
	}
}

func TestDecideAndMutateDoNotAllocate(t *testing.T) {
	c := threshold(1024, 8)
	c.ProbeFraction = 0.1
	p, clk, _ := newPolicy(t, c)
	if err := p.Apply(withTrial(document(1, clk.now(), small), large, store.Assignment{Mode: store.AssignSubset, Share: 0.5})); err != nil {
		t.Fatal(err)
	}
	p.Observe("a", 8, clk.now())
	restricted := request("some-request-id", "a", 64)
	restricted.Evidence.LoadTiers = []string{"nvme", "cpu"}
	for name, r := range map[string]*Request{
		"load":          request("some-request-id", "b", 64),
		"below minimum": request("some-request-id", "b", 1),
		"queue gate":    request("some-request-id", "a", 64),
		"restricted":    restricted,
		"no evidence":   {ID: "some-request-id", Endpoint: "a"},
	} {
		bodies := map[Action][]map[string]any{
			Load: {
				{"kv_transfer_params": map[string]any{"remote_engine_id": "e"}},
				{"kv_transfer_params": json.RawMessage(`{"remote_engine_id":"e", "x":[{"y":"}"}]}`)},
				{},
			},
			Recompute: {
				{"kv_transfer_params": map[string]any{"max_load_tokens": json.Number("0")}},
				{"kv_transfer_params": json.RawMessage(`{"remote_engine_id":"e", "max_load_tokens": 0}`)},
			},
		}
		if n := testing.AllocsPerRun(100, func() {
			d := p.Decide(r)
			for _, body := range bodies[d.Action] {
				if _, raw := body["kv_transfer_params"].(json.RawMessage); raw && raceDetector {
					continue // encoding/json pools its scanners
				}
				if changed, err := d.Mutate(body); changed || err != nil {
					t.Fatal(changed, err)
				}
				if tiers := LoadTiers(body); tiers != nil {
					t.Fatal(tiers)
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		clk.advance(time.Millisecond)
		p.Observe("a", 3, clk.now())
	}); n != 0 {
		t.Errorf("Observe: %v allocations, want 0", n)
	}
}
