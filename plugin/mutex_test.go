package plugin

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

// mutexPolicy is the threshold policy written the plain way: one lock around a map
// of endpoints and a document, and counters from the client library. It is what
// Policy is measured against, and its reference.
type mutexPolicy struct {
	mu        sync.Mutex
	config    Config
	doc       *store.Document
	endpoints map[string]*mutexEndpoint

	counted   bool
	decisions *prometheus.CounterVec
	started   *prometheus.CounterVec
	reusable  *prometheus.CounterVec
	tokens    prometheus.Histogram
}

type mutexEndpoint struct {
	ewma   float64
	at     time.Time
	closed map[int]bool // by limit, of those that are ever in force
}

func newMutexPolicy(c Config, doc *store.Document, counted bool) *mutexPolicy {
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, labels)
	}
	return &mutexPolicy{
		config: c.withDefaults(), doc: doc, endpoints: map[string]*mutexEndpoint{}, counted: counted,
		decisions: counter("decisions_total", "arm", "action", "reason"),
		started:   counter("cost_started_total", "action", "reusable"),
		reusable:  counter("cost_reusable_tokens_total", "action", "reusable"),
		tokens: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "external_reusable_tokens", Buckets: prometheus.ExponentialBuckets(64, 2, 12), NativeHistogramBucketFactor: 1.19,
		}),
	}
}

func (p *mutexPolicy) limits() []int {
	limits := []int{p.doc.Baseline.MaxWaitingRequests}
	if p.doc.Trial != nil {
		limits = append(limits, p.doc.Trial.Candidate.MaxWaitingRequests)
	}
	return limits
}

func (p *mutexPolicy) observe(endpoint string, waiting int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[endpoint]
	switch {
	case e == nil || at.Sub(e.at) > p.config.Gate.MaxSampleAge:
		e = &mutexEndpoint{ewma: float64(waiting), closed: map[int]bool{}}
		p.endpoints[endpoint] = e
	case !at.After(e.at):
		return
	default:
		e.ewma += (float64(waiting) - e.ewma) * (1 - math.Exp2(-float64(at.Sub(e.at))/float64(p.config.Gate.HalfLife)))
	}
	e.at = at
	for _, limit := range p.limits() {
		e.closed[limit] = e.ewma >= float64(limit) || e.closed[limit] && e.ewma > float64(limit)/2
	}
}

func (p *mutexPolicy) decide(r *Request, now time.Time) (Reason, store.Arm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, arm := p.doc.Baseline, store.ArmBaseline
	if t := p.doc.Trial; t != nil && now.Before(t.ExpiresAt) && t.Covers(r.Endpoint) {
		in, arm = t.Candidate, store.ArmCandidate
	}
	tokens, _, reason := r.Evidence.tokens()
	e := p.endpoints[r.Endpoint]
	known := e != nil && now.Sub(e.at) <= p.config.Gate.MaxSampleAge
	calm := in.MaxWaitingRequests == store.NoGate || known && e.ewma <= p.config.ProbeWaitingFactor*float64(in.MaxWaitingRequests)
	probe := tokens > 0 && calm && draw(r.ID) < drawBelow(p.config.ProbeFraction)
	switch {
	case reason != ReasonReusable:
	case store.Tokens(tokens) < in.MinExternalReusableTokens && probe:
		reason = ReasonProbeBelowMinimum
	case store.Tokens(tokens) < in.MinExternalReusableTokens:
		reason = ReasonBelowMinimum
	case in.MaxWaitingRequests != store.NoGate && known && e.closed[in.MaxWaitingRequests] && probe:
		reason = ReasonProbeQueueGate
	case in.MaxWaitingRequests != store.NoGate && known && e.closed[in.MaxWaitingRequests]:
		reason = ReasonQueueGate
	}
	if p.counted {
		p.count(arm, reason, tokens)
	}
	return reason, arm
}

func (p *mutexPolicy) count(arm store.Arm, reason Reason, tokens int) {
	action, size := reason.Action().String(), costLabels[costBucket(tokens)]
	p.decisions.WithLabelValues(string(arm), action, reason.String()).Inc()
	p.started.WithLabelValues(action, size).Inc()
	p.reusable.WithLabelValues(action, size).Add(float64(tokens))
	p.tokens.Observe(float64(tokens))
}

// TestDecideAgainstReference: whatever happens, the policy decides as the plain
// one does.
func TestDecideAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clk := newClock()
		c := threshold(1024, 8)
		c.ProbeFraction, c.Tuning = 0.1, &Tuning{File: "parameters.json"}
		p, err := New(Options{Config: c, Pool: "p", Now: clk.now})
		if err != nil {
			t.Fatal(err)
		}
		half := store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: rapid.Uint64().Draw(t, "seed")}
		doc := withTrial(document(1, clk.now(), drawParams(t)), drawParams(t), half)
		if err := p.Apply(doc); err != nil {
			t.Fatal(err)
		}
		plain := newMutexPolicy(c, doc, false)
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			clk.advance(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			name := "pod-" + strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "pod"))
			if rapid.Bool().Draw(t, "sample") {
				waiting := rapid.IntRange(0, 40).Draw(t, "waiting")
				p.Observe(name, waiting, clk.now())
				plain.observe(name, waiting, clk.now())
			}
			r := request(strconv.Itoa(i), name, rapid.IntRange(0, 40).Draw(t, "blocks"))
			d := p.Decide(r)
			if reason, arm := plain.decide(r, clk.now()); reason != d.Reason || arm != d.Arm {
				t.Fatalf("%v on %v, the reference says %v on %v", d.Reason, d.Arm, reason, arm)
			}
		}
	})
}

func drawParams(t *rapid.T) store.Params {
	return store.Params{
		MinExternalReusableTokens: store.Tokens(rapid.IntRange(1, 3000).Draw(t, "tokens")),
		MaxWaitingRequests:        rapid.IntRange(0, 20).Draw(t, "limit"),
	}
}

// BenchmarkDecideMutex is the plain policy, with the counters it would have.
func BenchmarkDecideMutex(b *testing.B) { benchmarkMutex(b, true) }

// BenchmarkDecideMutexUncounted leaves its counters out: what lock, clock and tier
// map cost by themselves.
func BenchmarkDecideMutexUncounted(b *testing.B) { benchmarkMutex(b, false) }

func benchmarkMutex(b *testing.B, counted bool) {
	for _, n := range fleets {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			c := benchConfig()
			p := newMutexPolicy(c, document(1, time.Now(), c.Params()), counted)
			names, requests := fleet(n), traffic()
			for i, name := range names {
				p.observe(name, i%16, time.Now())
			}
			parallel(b, func(i int) {
				r := requests[i%len(requests)]
				r.Endpoint = names[i%n]
				_, _ = p.decide(&r, time.Now())
			})
		})
	}
}
