package tuner

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
)

// metrics are the tuner's own, one set a pool.
type metrics struct {
	steps           *prometheus.CounterVec
	samples         *prometheus.CounterVec
	decisions       *prometheus.CounterVec
	publishFailures prometheus.Counter
	lastStep        prometheus.Gauge
	ready           prometheus.Gauge
	revision        prometheus.Gauge
	parameter       *prometheus.GaugeVec
	bound           *prometheus.GaugeVec
	trial           prometheus.Gauge
	paused          prometheus.Gauge
	cost            prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, pool string, mode Mode) (*metrics, error) {
	labels := prometheus.Labels{"pool": pool}
	counter := func(name, help string, names ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, names)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	}
	m := &metrics{
		steps:     counter("kvtuner_steps_total", "Turns of the loop, by outcome.", "outcome"),
		samples:   counter("kvtuner_samples_total", "Samples of the pool, by state.", "state"),
		decisions: counter("kvtuner_decisions_total", "Decisions recorded, by kind.", "kind"),
		publishFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kvtuner_publish_failures_total", Help: "Writes of the parameter document that failed.", ConstLabels: labels}),
		lastStep: gauge("kvtuner_last_step_timestamp_seconds", "When the last step without an error ended."),
		ready:    gauge("kvtuner_ready", "1 while the pool is taken over, its steps succeed and its engines and plugin are seen, else 0."),
		revision: gauge("kvtuner_revision", "Revision of the document last written or taken over."),
		parameter: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kvtuner_parameter", Help: "Parameters published, by arm and name; +Inf tokens is never load, 0 waiting is no gate, loadPolicy is 1 for adaptive.", ConstLabels: labels}, []string{"arm", "name"}),
		bound: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kvtuner_bound", Help: "Ends of the bounds, min and max, by parameter; +Inf tokens is never load, a max of 0 waiting is no gate.", ConstLabels: labels}, []string{"parameter", "bound"}),
		trial:  gauge("kvtuner_trial_active", "1 while a trial's document is published."),
		paused: gauge("kvtuner_paused", "1 while an operator's pause is in force."),
		cost:   gauge("kvtuner_cost_seconds", "The objective of the last usable sample: seconds a request costs, lower is better."),
	}
	inMode := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kvtuner_mode", Help: "1 for the pool's mode.", ConstLabels: labels}, []string{"mode"})
	inMode.WithLabelValues(string(mode)).Set(1)
	m.cost.Set(math.NaN()) // not known, which is not 0
	for _, kind := range store.Kinds() {
		m.decisions.WithLabelValues(string(kind)) // so that increase() sees the first
	}
	for _, c := range []prometheus.Collector{m.steps, m.samples, m.decisions, m.publishFailures, m.lastStep, m.ready, m.revision, m.parameter, m.bound, m.trial, m.paused, m.cost, inMode} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("pool %q: registering the tuner's metrics (is there another pool of that name?): %w", pool, err)
		}
	}
	return m, nil
}

func (m *metrics) step(now time.Time, err error) {
	if err != nil {
		m.steps.WithLabelValues("error").Inc()
		return
	}
	m.steps.WithLabelValues("ok").Inc()
	m.lastStep.Set(float64(now.Unix()))
}

func (m *metrics) sample(s Sample, o Objective) {
	m.samples.WithLabelValues(string(s.State)).Inc()
	m.cost.Set(math.NaN())
	if cost, ok := o.Cost(s.Signals); ok && s.State == OK {
		m.cost.Set(cost)
	}
}

func (m *metrics) pause(p *PauseStatus) {
	m.paused.Set(0)
	if p != nil {
		m.paused.Set(1)
	}
}

func (m *metrics) published(d *store.Document) {
	m.revision.Set(float64(d.Revision))
	m.setParams(store.ArmBaseline, d.Baseline)
	if d.Trial == nil {
		m.trial.Set(0)
		m.parameter.DeletePartialMatch(prometheus.Labels{"arm": string(store.ArmCandidate)})
		return
	}
	m.trial.Set(1)
	m.setParams(store.ArmCandidate, d.Trial.Candidate)
}

func (m *metrics) setParams(arm store.Arm, p store.Params) {
	m.parameter.WithLabelValues(string(arm), store.NameTokens).Set(gaugeTokens(p.MinExternalReusableTokens))
	m.parameter.WithLabelValues(string(arm), store.NameWaiting).Set(float64(p.MaxWaitingRequests))
	adaptive := 0.0
	if p.LoadPolicy == store.Adaptive {
		adaptive = 1
	}
	m.parameter.WithLabelValues(string(arm), store.NameLoadPolicy).Set(adaptive)
}

func (m *metrics) setBounds(b store.Bounds) {
	m.bound.WithLabelValues(store.NameTokens, "min").Set(gaugeTokens(b.MinExternalReusableTokens.Min))
	m.bound.WithLabelValues(store.NameTokens, "max").Set(gaugeTokens(b.MinExternalReusableTokens.Max))
	m.bound.WithLabelValues(store.NameWaiting, "min").Set(float64(b.MaxWaitingRequests.Min))
	m.bound.WithLabelValues(store.NameWaiting, "max").Set(float64(b.MaxWaitingRequests.Max))
}

func gaugeTokens(t store.Tokens) float64 {
	if t == store.Never {
		return math.Inf(1)
	}
	return float64(t)
}
