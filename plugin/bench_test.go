package plugin

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var fleets = []int{4, 64, 4096}

// traffic is a fleet and requests to it: each names an endpoint, in a shuffled
// order, and brings evidence of three tiers.
func traffic(endpoints int) (names []string, requests []Request) {
	names = make([]string, endpoints)
	requests = make([]Request, endpoints)
	for i := range names {
		names[i] = fmt.Sprintf("default/vllm-qwen3-32b-%05d:8000", i)
	}
	for i := range requests {
		requests[i] = Request{
			ID:       fmt.Sprintf("7d4c0b6e-9f1a-4c58-b7d2-%012d", i),
			Endpoint: names[i*2654435761%endpoints],
			Evidence: Evidence{BlockSize: 64, Prompts: []PrefixMatch{{
				CachedBlocks: 20 + i%30, ByTier: map[string]int{"gpu": i % 20, "cpu": 20 + i%30, "nvme": 10},
			}}},
		}
	}
	return names, requests
}

// benchConfig has samples stay fresh for as long as a benchmark runs.
func benchConfig() Config {
	c := threshold(1024, 8)
	c.Gate.MaxSampleAge = time.Minute
	c.ProbeFraction = 0.01
	return c
}

func benchPolicy(b *testing.B, endpoints int) (*Policy, []Request) {
	p, err := New(Options{Config: benchConfig(), Pool: "p"})
	if err != nil {
		b.Fatal(err)
	}
	names, requests := traffic(endpoints)
	for i, name := range names {
		p.Observe(name, i%16, time.Now())
	}
	return p, requests
}

// BenchmarkDecide is one decision, every core at once.
func BenchmarkDecide(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			p, requests := benchPolicy(b, n)
			parallel(b, func(i int) { _ = p.Decide(&requests[i%n]) })
		})
	}
}

// BenchmarkDecideSerial is one decision on one core.
func BenchmarkDecideSerial(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			p, requests := benchPolicy(b, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_ = p.Decide(&requests[i%n])
				i += 7
			}
		})
	}
}

// BenchmarkDecideMutate is one decision and its edit of a body: one that needs
// no change, and one whose kv_transfer_params is made.
func BenchmarkDecideMutate(b *testing.B) {
	p, _ := benchPolicy(b, 64)
	few := request("id", "none", 1)
	b.Run("unchanged", func(b *testing.B) {
		body := map[string]any{"model": "m", "kv_transfer_params": map[string]any{"max_load_tokens": json.Number("0")}}
		b.ReportAllocs()
		for b.Loop() {
			if changed, err := p.Decide(few).Mutate(body); changed || err != nil {
				b.Fatal(changed, err)
			}
		}
	})
	b.Run("created", func(b *testing.B) {
		body := map[string]any{"model": "m"}
		b.ReportAllocs()
		for b.Loop() {
			delete(body, "kv_transfer_params")
			if changed, err := p.Decide(few).Mutate(body); !changed || err != nil {
				b.Fatal(changed, err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		raw := json.RawMessage(`{"remote_engine_id":"e","seed":9007199254740993,"max_load_tokens":512}`)
		body := map[string]any{"model": "m"}
		b.ReportAllocs()
		for b.Loop() {
			body["kv_transfer_params"] = raw
			if changed, err := p.Decide(few).Mutate(body); !changed || err != nil {
				b.Fatal(changed, err)
			}
		}
	})
}

// BenchmarkGate is one sample of the waiting queue.
func BenchmarkGate(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			p, _ := benchPolicy(b, n)
			names, _ := traffic(n)
			parallel(b, func(i int) { p.Observe(names[i%n], i&15, time.Now()) })
		})
	}
}

// BenchmarkDecideMutex is the peer: the same policy behind one lock.
func BenchmarkDecideMutex(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			p := &mutexPolicy{config: benchConfig().withDefaults(), endpoints: map[string]*mutexEndpoint{}, decisions: map[Reason]uint64{}}
			names, requests := traffic(n)
			for i, name := range names {
				p.observe(name, i%16, time.Now())
			}
			parallel(b, func(i int) { _ = p.decide(&requests[i%n], time.Now()) })
		})
	}
}

// parallel runs work on every core, each from another place.
func parallel(b *testing.B, work func(i int)) {
	b.ReportAllocs()
	var start atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for i := int(start.Add(1)) * 997; pb.Next(); i++ {
			work(i)
		}
	})
}

// mutexPolicy is the policy written the plain way.
type mutexPolicy struct {
	mu        sync.Mutex
	config    Config
	endpoints map[string]*mutexEndpoint
	decisions map[Reason]uint64
}

type mutexEndpoint struct {
	ewma   float64
	at     time.Time
	closed bool
}

func (p *mutexPolicy) observe(endpoint string, waiting int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[endpoint]
	if e == nil {
		e = &mutexEndpoint{ewma: float64(waiting)}
		p.endpoints[endpoint] = e
	} else {
		e.ewma += (float64(waiting) - e.ewma) * (1 - math.Exp2(-at.Sub(e.at).Seconds()/p.config.Gate.HalfLife.Seconds()))
	}
	e.at = at
	e.closed = e.ewma >= float64(p.config.MaxWaitingRequests) || e.closed && e.ewma > float64(p.config.MaxWaitingRequests)/2
}

func (p *mutexPolicy) decide(r *Request, now time.Time) Reason {
	tokens, reason := r.Evidence.tokens()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[r.Endpoint]
	switch {
	case reason != ReasonReusable:
	case tokens < int(p.config.MinExternalReusableTokens):
		reason = ReasonBelowMinimum
	case e != nil && e.closed && now.Sub(e.at) <= p.config.Gate.MaxSampleAge:
		reason = ReasonQueueGate
	}
	p.decisions[reason]++
	return reason
}
