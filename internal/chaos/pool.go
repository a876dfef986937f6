package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
)

func pow(base, exponent float64) float64 { return math.Pow(base, exponent) }

// workload is what a pool serves and what it costs there.
type workload struct {
	engines int
	rate    float64   // requests a second and engine
	lengths []int     // reusable blocks of the kinds of request
	slope   float64   // seconds a computed token
	fixed   float64   // seconds a restore
	perTok  float64   // seconds a restored token
	decode  float64   // seconds of output
	shares  []float64 // of the kinds, cumulative
}

// Sizes of a request.
const (
	blockTokens  = 64
	freshTokens  = 256
	outputTokens = 128
	// capacity is the seconds of prefill and of restores an engine does a second.
	capacity = 1.0
)

func drawWorkload(rng *rand.Rand) workload {
	w := workload{
		engines: 1 + rng.IntN(4), rate: 1 + 2*rng.Float64(), lengths: []int{0, 8, 32, 128}, decode: 2,
		slope:  2e-5 * pow(4, rng.Float64()),
		fixed:  0.01 + 0.05*rng.Float64(),
		perTok: 2e-6 * pow(60, rng.Float64()),
	}
	sum := 0.0
	for range w.lengths {
		sum += 0.05 + rng.Float64()
		w.shares = append(w.shares, sum)
	}
	return w
}

// stress is what faults do to a pool at the moment, as factors.
type stress struct {
	rate, restore, slope float64
	errors               float64 // share of requests
	wedged               bool    // nothing completes
}

// engine is one vLLM engine as its metrics show it.
type engine struct {
	name     string
	joined   time.Time
	dark     bool // not scraped
	frozen   bool // deleted, its last values still scraped
	skew     time.Duration
	running  float64
	waiting  float64
	backlog  float64 // of restores, in seconds of work
	carry    float64 // part of a request
	counters map[series]float64
}

// pool is the engines and the requests that arrive.
type pool struct {
	load    workload
	rng     *rand.Rand
	engines []*engine
	stress  stress
	made    int
	seq     int
}

func newPool(w workload, rng *rand.Rand, now time.Time) *pool {
	p := &pool{load: w, rng: rng, stress: calmness}
	for range w.engines {
		p.join(now)
	}
	return p
}

var calmness = stress{rate: 1, restore: 1, slope: 1}

func (p *pool) join(now time.Time) {
	p.engines = append(p.engines, &engine{name: fmt.Sprintf("vllm-%d", p.made), joined: now, counters: map[series]float64{}})
	p.made++
}

// serve lets an engine serve for d what the deciders let through.
func (p *pool) serve(e *engine, d time.Duration, decide func(*plugin.Request) answered) {
	e.carry += p.load.rate * p.stress.rate * d.Seconds() * (0.8 + 0.4*p.rng.Float64())
	n := int(e.carry)
	e.carry -= float64(n)
	work, restores := 0.0, 0.0
	for range n {
		r := p.request(e)
		a := decide(r)
		ttft, prefill, restore := p.cost(e, r, a.decision)
		work, restores = work+prefill, restores+restore
		p.count(e, r, a, ttft)
	}
	seconds := d.Seconds()
	e.backlog = max(0, e.backlog+restores-capacity*seconds)
	load := min(work/(capacity*seconds), 0.98)
	e.waiting = load*load/(1-load) + min(e.backlog, 60)*p.load.rate
	e.running = float64(n)/seconds*p.load.decode + 1e-9
	if p.stress.wedged {
		e.waiting += 50
	}
	if n == 0 && !p.stress.wedged {
		e.running, e.waiting = 0, 0
	}
}

func (p *pool) request(e *engine) *plugin.Request {
	p.seq++
	r := &plugin.Request{ID: fmt.Sprintf("r%d", p.seq), Endpoint: e.name}
	if p.rng.Float64() < 0.02 {
		return r // without evidence
	}
	x := p.rng.Float64() * p.load.shares[len(p.load.shares)-1]
	kind := 0
	for x > p.load.shares[kind] {
		kind++
	}
	r.Evidence = plugin.Evidence{BlockSize: blockTokens, Prompts: []plugin.PrefixMatch{{
		CachedBlocks: p.load.lengths[kind], ByTier: map[string]int{"cpu": p.load.lengths[kind]},
	}}}
	return r
}

// cost of a request: its TTFT, and the seconds of prefill and of storage it takes.
func (p *pool) cost(e *engine, r *plugin.Request, d plugin.Decision) (ttft, prefill, restore float64) {
	reusable := float64(reusableTokens(r))
	computed := freshTokens + reusable
	if d.Action == plugin.Load && reusable > 0 {
		restore = (p.load.fixed + p.load.perTok*reusable) * p.stress.restore
		computed = freshTokens
	}
	prefill = p.load.slope * p.stress.slope * computed
	ttft = 0.02 + prefill*(1+0.1*e.waiting) + restore
	if restore > 0 {
		ttft += e.backlog
	}
	return ttft * math.Exp(0.05*p.rng.NormFloat64()), prefill, restore
}

func reusableTokens(r *plugin.Request) int {
	if len(r.Evidence.Prompts) == 0 {
		return 0
	}
	return r.Evidence.Prompts[0].CachedBlocks * blockTokens
}

// count a request in the engine's metrics and tell the policy of its first token.
func (p *pool) count(e *engine, r *plugin.Request, a answered, ttft float64) {
	c := e.counters
	reusable := float64(reusableTokens(r))
	prompt, computed := freshTokens+reusable, freshTokens+reusable
	c[promptTokens] += prompt
	if p.stress.wedged {
		return
	}
	if p.rng.Float64() < p.stress.errors {
		c[finishedError]++
		return
	}
	if a.decision.Action == plugin.Load && reusable > 0 {
		computed = freshTokens
		c[externalTokens] += reusable
		c[loadTime] += p.load.perTok * reusable * p.stress.restore
		c[lookupDelay] += e.backlog
	}
	c[e2eCount]++
	c[e2eSum] += ttft + p.load.decode*(1+0.05*e.waiting)
	c[ttftCount]++
	c[ttftSum] += ttft
	if ttft <= 5 {
		c[ttftBucket]++
	}
	c[generated] += outputTokens
	c[finishedStop]++
	a.policy.ObserveFirstToken(a.decision, time.Duration(ttft*float64(time.Second)), int(computed))
}
