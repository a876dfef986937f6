package gie

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"time"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
)

// Where a queue metric has a series for each reason to wait, only requests that
// wait for room count: those deferred wait for the very restores that are
// judged.
const (
	reasonLabel    = "reason"
	capacityReason = "capacity"
)

// ExpectedInputType is anything: the plugin is an extractor of the scrape
// (Extract) and of endpoints (ExtractEndpoint).
func (p *Plugin) ExpectedInputType() reflect.Type { return reflect.TypeFor[any]() }

// Extract takes the waiting queue out of a scrape of the EPP, if the plugin is
// listed under its metrics source. That is better than what requests bring: it
// comes with every scrape, and says when the metric is missing.
func (p *Plugin) Extract(_ context.Context, data any, from datalayer.Endpoint) error {
	families, ok := data.(map[string]*dto.MetricFamily)
	if !ok {
		return fmt.Errorf("%s: cannot extract from %T, list the plugin under a metrics-data-source or an endpoint-notification-source", p.name, data)
	}
	if from == nil || from.GetMetadata() == nil {
		return nil
	}
	p.scraped.Store(true)
	waiting, found := queue(families[p.signal])
	if !found {
		p.metrics.fault(faultQueueAbsent)
		return nil
	}
	now := p.now()
	if e := p.endpoints.use(from.GetMetadata().NamespacedName, now); !e.gone.Load() {
		p.policy.Observe(e.name, waiting, now)
	}
	return nil
}

// queue sums the series of all engines behind one endpoint.
func queue(family *dto.MetricFamily) (waiting int, found bool) {
	sum := 0.0
	for _, m := range family.GetMetric() {
		if reason, labelled := label(m, reasonLabel); labelled && reason != capacityReason {
			continue
		}
		found = true
		sum += value(m)
	}
	if !found || math.IsNaN(sum) || math.IsInf(sum, 0) {
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

func value(m *dto.Metric) float64 {
	if m.Gauge != nil {
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// observe feeds the gate with what a request brings of its endpoint, unless the
// scrape itself does. The framework keeps the default signal only.
func (p *Plugin) observe(endpoint scheduling.Endpoint) {
	if p.scraped.Load() || p.signal != plugin.DefaultWaitingSignal {
		return
	}
	metrics := endpoint.GetMetrics()
	if metrics == nil {
		return
	}
	e := p.endpoints.use(endpoint.GetMetadata().NamespacedName, p.now())
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
