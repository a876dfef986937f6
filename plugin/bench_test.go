package plugin

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

var fleets = []int{4, 64, 1024, 10000}

// fleet names the endpoints of a fleet.
func fleet(endpoints int) []string {
	names := make([]string, endpoints)
	for i := range names {
		names[i] = fmt.Sprintf("default/vllm-qwen3-32b-%05d:8000", i)
	}
	return names
}

// traffic is requests with evidence of three tiers, as few as stay in a core's
// cache: a request is hot when it is decided, its endpoint may not be.
func traffic() *[16]Request {
	requests := new([16]Request)
	for i := range requests {
		requests[i] = Request{
			ID: fmt.Sprintf("7d4c0b6e-9f1a-4c58-b7d2-%012d", i),
			Evidence: Evidence{BlockSize: 64, Prompts: []PrefixMatch{{
				CachedBlocks: 20 + 2*i, ByTier: map[string]int{"gpu": i, "cpu": 20 + 2*i, "nvme": 10},
			}}},
		}
	}
	return requests
}

// benchConfig has samples stay fresh for as long as a benchmark runs.
func benchConfig() Config {
	c := threshold(1024, 8)
	c.Gate.MaxSampleAge = time.Minute
	c.ProbeFraction = 0.01
	return c
}

func benchPolicy(b *testing.B, names []string) *Policy {
	p, err := New(Options{Config: benchConfig(), Pool: "p"})
	if err != nil {
		b.Fatal(err)
	}
	for i, name := range names {
		p.Observe(name, i%16, time.Now())
	}
	return p
}

// BenchmarkDecide is one decision, every core at once.
func BenchmarkDecide(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			names, requests := fleet(n), traffic()
			p := benchPolicy(b, names)
			parallel(b, func(i int) {
				r := requests[i%len(requests)]
				r.Endpoint = names[i%n]
				_ = p.Decide(&r)
			})
		})
	}
}

// BenchmarkDecideAdaptive is one decision that weighs the request by its cost, every
// core at once; half of them restore.
func BenchmarkDecideAdaptive(b *testing.B) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			names, requests := fleet(n), traffic()
			p := adaptivePolicy(b, names)
			parallel(b, func(i int) {
				r := requests[i%len(requests)]
				r.Endpoint = names[i%n]
				_ = p.Decide(&r)
			})
		})
	}
}

// adaptivePolicy has engines of which every second runs so many requests that
// computing is the dearer.
func adaptivePolicy(b *testing.B, names []string) *Policy {
	c := benchConfig()
	c.MinExternalReusableTokens, c.MaxWaitingRequests = 64, 16
	c.LoadPolicy, c.Tuning = Adaptive, &Tuning{File: "parameters.json"}
	p, err := New(Options{Config: c, Pool: "p"})
	if err != nil {
		b.Fatal(err)
	}
	doc := withCosts(document(1, time.Now(), c.Params()), costs)
	if err := p.Apply(doc); err != nil {
		b.Fatal(err)
	}
	for i, name := range names {
		p.Observe(name, 0, time.Now())
		p.ObserveRunning(name, i%2*64, time.Now())
	}
	return p
}

// BenchmarkObserveRunning is one sample of the running requests, with the factor
// by which restores cost more worked out anew.
func BenchmarkObserveRunning(b *testing.B) {
	names := fleet(64)
	p := adaptivePolicy(b, names)
	at := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.ObserveRunning(names[i%len(names)], i%64, at)
	}
}

// BenchmarkDecideMutate is one decision and its edit of a body: one that needs
// no change, as a map and as raw JSON, one whose kv_transfer_params is made, and
// one whose raw JSON is edited.
func BenchmarkDecideMutate(b *testing.B) {
	p := benchPolicy(b, nil)
	few := request("id", "none", 1)
	b.Run("unchanged", func(b *testing.B) {
		body := map[string]any{"model": "m", "kv_transfer_params": map[string]any{"max_load_tokens": json.Number("0")}}
		parallel(b, func(int) {
			if changed, err := p.Decide(few).Mutate(body); changed || err != nil {
				b.Error(changed, err)
			}
		})
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
	b.Run("unchanged raw", func(b *testing.B) {
		body := map[string]any{"model": "m", "kv_transfer_params": json.RawMessage(`{"remote_engine_id":"e","seed":9007199254740993,"max_load_tokens":0}`)}
		parallel(b, func(int) {
			if changed, err := p.Decide(few).Mutate(body); changed || err != nil {
				b.Error(changed, err)
			}
		})
	})
	b.Run("edited raw", func(b *testing.B) {
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
			names := fleet(n)
			p := benchPolicy(b, names)
			parallel(b, func(i int) { p.Observe(names[i%n], i&15, time.Now()) })
		})
	}
}

// parallel runs work in as many goroutines as -cpu says, each from another place.
func parallel(b *testing.B, work func(i int)) {
	b.ReportAllocs()
	var start atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(start.Add(1)) * 997; pb.Next(); i += 7 {
			work(i)
		}
	})
}
