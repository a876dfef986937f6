package plugin

import (
	"sync/atomic"
	"time"
)

// batch is the number of requests running in one engine, as of the last sample.
type batch struct {
	at    atomic.Int64
	count atomic.Int64
}

func (b *batch) observe(at int64, running int) {
	b.count.Store(int64(running))
	b.at.Store(at)
}

// running is the count; fresh is false if it is no evidence at now.
func (b *batch) running(d decay, now int64) (count int64, fresh bool) {
	at := b.at.Load()
	return b.count.Load(), at != never && now-at <= d.maxAge && at-now <= d.maxAge
}

// ObserveRunning takes one sample of the number of requests running in an engine,
// as of the time the metric itself was updated. Call it with every update; only a
// policy that weighs requests by their cost looks at it. It is refused and counted
// for what Observe refuses, and ignored for an endpoint that Observe was never
// called for.
func (p *Policy) ObserveRunning(endpoint string, running int, at time.Time) {
	if at.IsZero() {
		return
	}
	if running < 0 {
		p.metrics.refusedSamples.WithLabelValues(sampleRunning).Inc()
		return
	}
	e := p.endpoints.get(endpoint)
	if e == nil {
		return
	}
	now, taken := p.elapsed(), p.since(at)
	if taken-now > p.decay.maxAge {
		p.metrics.refusedSamples.WithLabelValues(sampleFuture).Inc()
		return
	}
	e.batch.observe(taken, running)
	if r := p.inForce.Load().rule; r != nil && e.restores != nil {
		e.restores.update(r, now)
	}
}
