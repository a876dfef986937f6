package llmd

import (
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
)

// observe feeds the gate with the waiting queue that a request brings of its
// endpoint. The framework keeps one signal only, the default one.
func (p *Plugin) observe(endpoint scheduling.Endpoint) {
	metrics := endpoint.GetMetrics()
	if metrics == nil {
		return
	}
	e := p.endpoints.use(endpoint.GetMetadata().ID, p.now())
	if e.gone.Load() {
		return
	}
	if e.stuck(metrics.WaitingQueueSize, metrics.RunningRequestsSize, metrics.UpdateTime) {
		p.metrics.fault(faultQueueStuck)
		return
	}
	p.policy.Observe(e.name, metrics.WaitingQueueSize, metrics.UpdateTime)
}

// A queue counts as stuck after this long without a change, in which the running
// requests changed this often. The framework's update time advances with any
// metric, and keeps the last value of one that vanished.
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
func (s *stillness) stuck(waiting, running int, at time.Time) bool {
	switch {
	case !at.After(s.last):
	case waiting != s.waiting || s.last.IsZero():
		*s = stillness{waiting: waiting, running: running, since: at, last: at}
	case running != s.running:
		s.running, s.last = running, at
		s.moves++
	default:
		s.last = at
	}
	return s.waiting > 0 && s.moves >= stuckMoves && s.last.Sub(s.since) >= stuckAfter
}
