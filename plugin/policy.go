package plugin

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are what a Policy is made of.
type Options struct {
	// Config is the static configuration. Zero fields take their defaults, but
	// a zero ProbeFraction means no probes; see ParseConfig.
	Config Config
	// Pool is the name of the pool served, as in its parameter document.
	// Required.
	Pool string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger hears of refused documents; nil is silent.
	Logger *slog.Logger
	// Registerer takes the metrics; nil exports none. A second policy of the
	// same pool on the same registry continues the counters of the first, and
	// the gauges show the newer one.
	Registerer prometheus.Registerer
}

// Policy decides for the requests of one pool. It is safe for concurrent use.
type Policy struct {
	config     Config
	pool       string
	now        func() time.Time
	epoch      time.Time
	elapsed    func() int64 // since epoch, in nanoseconds
	log        *slog.Logger
	metrics    *metrics
	decay      decay
	probeBelow uint64

	applying  sync.Mutex
	applied   uint64 // documents; under applying
	inForce   atomic.Pointer[snapshot]
	endpoints endpoints
}

// New makes a policy that runs on its static configuration until a document is
// applied. Errors name the setting, its value and what is allowed.
func New(o Options) (*Policy, error) {
	o.Config = o.Config.withDefaults()
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("configure policy: %w", err)
	}
	if o.Pool == "" {
		return nil, fmt.Errorf("configure policy: %w", refuse("pool", `""`, "the name of the pool this Endpoint Picker serves"))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := register(newMetrics(o.Pool), o.Registerer)
	if err != nil {
		return nil, err
	}
	p := &Policy{
		config:     o.Config,
		pool:       o.Pool,
		log:        o.Logger.With("pool", o.Pool),
		metrics:    m,
		decay:      o.Config.Gate.decay(),
		probeBelow: drawBelow(o.Config.ProbeFraction),
	}
	p.setClock(o.Now)
	p.inForce.Store(staticSnapshot(o.Config.Params()))
	m.policy.Store(p)
	return p, nil
}

// Config returns the configuration in use, with defaults filled in.
func (p *Policy) Config() Config { return p.config }

// setClock starts the clock. Decisions read the time elapsed, which within a
// process does not follow steps of the wall clock; of the real clock that is
// read alone, for it costs half of time.Now.
func (p *Policy) setClock(now func() time.Time) {
	if now == nil {
		p.now, p.epoch = time.Now, time.Now()
		p.elapsed = func() int64 { return int64(time.Since(p.epoch)) }
		return
	}
	p.now, p.epoch = now, now()
	p.elapsed = func() int64 { return p.since(now()) }
}

// since maps t to nanoseconds since the epoch, far from the ends of int64 so
// that differences do not overflow.
func (p *Policy) since(t time.Time) int64 {
	return min(max(int64(t.Sub(p.epoch)), math.MinInt64/4), math.MaxInt64/4)
}

// Observe takes one sample of the number of requests waiting in an engine, as
// of the time the metric itself was updated. Call it with every update and
// before every decision: a sample with the time of the last one is the same
// sample. An empty endpoint or a zero time is no evidence. A negative number,
// and a time in the future by more than the maximum sample age, are refused and
// counted.
func (p *Policy) Observe(endpoint string, waiting int, at time.Time) {
	if endpoint == "" || at.IsZero() {
		return
	}
	if waiting < 0 {
		p.metrics.refusedSamples.WithLabelValues(sampleNegative).Inc()
		return
	}
	now, taken := p.elapsed(), p.since(at)
	if taken-now > p.decay.maxAge {
		p.metrics.refusedSamples.WithLabelValues(sampleFuture).Inc()
		return
	}
	e := p.endpoint(endpoint, now)
	if e == nil {
		p.metrics.refusedSamples.WithLabelValues(sampleNoRoom).Inc()
		return
	}
	s := p.inForce.Load()
	limit := s.params[s.arm(e, endpoint, now)].MaxWaitingRequests
	e.observe(p.decay, now, taken, float64(waiting), limit)
}

func (p *Policy) endpoint(name string, now int64) *endpoint {
	if e := p.endpoints.get(name); e != nil {
		return e
	}
	return p.endpoints.add(name, now, func() *endpoint { return newEndpoint(p.config.LoadPolicy == Adaptive) })
}

// Forget drops the state and the series of an endpoint that is gone.
func (p *Policy) Forget(endpoint string) { p.endpoints.remove(endpoint) }

// InForce returns the parameters the policy runs now.
func (p *Policy) InForce() InForce {
	now := p.now()
	return p.inForce.Load().describe(now, p.since(now))
}
