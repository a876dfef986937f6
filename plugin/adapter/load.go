package adapter

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kvtuner/kvtuner/plugin"
)

// Load is what an EPP knows of the load of one engine.
type Load struct {
	// Waiting and Running are numbers of requests. Waiting is the configured
	// waiting signal; Running may be Unknown.
	Waiting, Running int
	// At is when they were measured; zero is never.
	At time.Time
}

// observe passes the load of an engine on to the policy. Whatever an EPP knows
// of an engine, and however it came to know, goes through here.
func (a *Adapter) observe(e *endpoint, l Load) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	a.policy.Observe(e.name, l.Waiting, l.At)
	if l.Running != Unknown {
		a.policy.ObserveRunning(e.name, l.Running, l.At)
	}
}

// Scraped takes the load of an engine out of a scrape of its metrics. That is
// better than what Routed is told: it comes with every scrape, and says when the
// metric is missing. From the first call on, Routed is not listened to.
func (a *Adapter) Scraped(id EndpointID, families map[string]*dto.MetricFamily) {
	a.scraped.Store(true)
	waiting, found := requests(families[a.signal])
	if !found {
		a.Fault(FaultQueueAbsent)
		return
	}
	running, found := requests(families[runningMetric])
	if !found {
		running = Unknown
	}
	now := a.now()
	a.observe(a.endpoints.use(id, now), Load{Waiting: waiting, Running: running, At: now})
}

// runningMetric is vLLM's number of requests in execution.
const runningMetric = "vllm:num_requests_running"

// Routed takes the load of an engine that a request was routed to, as the EPP
// remembers it. An EPP remembers the default waiting signal only.
func (a *Adapter) Routed(id EndpointID, l Load) {
	if a.scraped.Load() || a.signal != plugin.DefaultWaitingSignal {
		return
	}
	e := a.endpoints.use(id, a.now())
	if e.stuck(l) {
		a.Fault(FaultQueueStuck)
		return
	}
	a.observe(e, l)
}

// Where a queue metric has a series for each reason to wait, only requests that
// wait for room count: those deferred wait for the very restores that are
// judged.
const (
	reasonLabel    = "reason"
	capacityReason = "capacity"
)

// maxRequests is more than any engine holds; a larger number is no measurement.
const maxRequests = 1 << 30

// requests sums the series of all engines behind one endpoint.
func requests(family *dto.MetricFamily) (n int, found bool) {
	sum := 0.0
	for _, m := range family.GetMetric() {
		if reason, labelled := label(m, reasonLabel); labelled && reason != capacityReason {
			continue
		}
		v, measured := value(m)
		if !measured {
			return 0, false
		}
		found = true
		sum += v
	}
	if !found || math.IsNaN(sum) || math.Abs(sum) > maxRequests {
		return 0, false
	}
	return int(sum), true
}

func label(m *dto.Metric, name string) (string, bool) {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue(), true
		}
	}
	return "", false
}

// value of a gauge, or of what has no type; measured is false for what cannot be a
// number of requests now, such as a counter.
func value(m *dto.Metric) (v float64, measured bool) {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Untyped != nil:
		return m.Untyped.GetValue(), true
	default:
		return 0, false
	}
}

// A queue counts as stuck after this long without a change, in which the running
// requests changed this often. The update time an EPP remembers advances with
// any metric, and keeps the last value of one that vanished.
const (
	stuckAfter = 10 * time.Second
	stuckMoves = 16
)

// stillness follows how long a queue has been at one value.
type stillness struct {
	waiting, running int
	since, last      time.Time
	moves            int // of running, since
}

// stuck takes one sample. An empty queue is never stuck: it rests for as long
// as it likes, and stops nothing.
func (s *stillness) stuck(l Load) bool {
	switch {
	case !l.At.After(s.last):
	case l.Waiting != s.waiting || s.last.IsZero():
		*s = stillness{waiting: l.Waiting, running: l.Running, since: l.At, last: l.At}
	case l.Running != s.running:
		s.running, s.last = l.Running, l.At
		s.moves++
	default:
		s.last = l.At
	}
	return s.waiting > 0 && s.moves >= stuckMoves && s.last.Sub(s.since) >= stuckAfter
}
