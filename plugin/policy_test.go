package plugin

import (
	"testing"
	"time"

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
