package plugin

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvtuner/kvtuner/store"
)

// descs describe the series that are put together when collected.
type descs struct {
	decisions, tokens                                   *prometheus.Desc
	started, reusable, finished, ttft, computed         *prometheus.Desc
	endpoints, average, closed, transitions, sampleAge  *prometheus.Desc
	revision, source, parameter, clamped, age, trialEnd *prometheus.Desc
	permitted, costs, costsAge, fallbacks, factor       *prometheus.Desc
}

func newDescs(constant prometheus.Labels) *descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("selective_kv_"+name, help, labels, constant)
	}
	return &descs{
		decisions:   desc("decisions_total", "Decisions, by arm, action and reason.", "arm", "action", "reason"),
		tokens:      desc("external_reusable_tokens", "Tokens that a restore would bring, of requests with evidence."),
		started:     desc("cost_started_total", "Streamed requests decided with evidence, by action and power of two of reusable tokens.", "action", "reusable"),
		reusable:    desc("cost_reusable_tokens_total", "Sum of their reusable tokens.", "action", "reusable"),
		finished:    desc("cost_finished_total", "Of those, requests whose first token was seen, also by power of two of the tokens the engine computed.", "action", "reusable", "computed"),
		ttft:        desc("cost_ttft_seconds_total", "Sum of their time to first token.", "action", "reusable", "computed"),
		computed:    desc("cost_computed_tokens_total", "Sum of their prompt tokens that the engine computed.", "action", "reusable", "computed"),
		endpoints:   desc("endpoints", "Endpoints whose queue is followed."),
		average:     desc("endpoint_waiting_ewma", "Smoothed number of requests waiting, as of the last sample.", "endpoint"),
		closed:      desc("endpoint_gate_closed", "1 if the queue gate is closed under the limit in force, else 0.", "endpoint"),
		sampleAge:   desc("endpoint_sample_age_seconds", "Age of the last sample of the waiting queue.", "endpoint"),
		transitions: desc("endpoint_gate_transitions_total", "Times the queue gate closed or opened.", "endpoint", "to"),
		revision:    desc("revision", "Revision of the parameter document in force; 0 for static configuration."),
		source:      desc("source", "1 for where the parameters in force come from.", "source"),
		parameter:   desc("parameter", "Parameters in force; +Inf tokens recompute everything, 0 waiting is no gate, loadPolicy is 1 for adaptive.", "arm", "name"),
		clamped:     desc("clamped", "1 if a document's parameters were clamped to the bounds.", "arm"),
		age:         desc("document_age_seconds", "Time since the document in force was written."),
		permitted:   desc("adaptive_permitted", "1 if the configured load policy permits a document to weigh each request by its cost, else 0."),
		costs:       desc("costs", "1 for the state of the costs that requests are weighed by.", "state"),
		costsAge:    desc("costs_age_seconds", "Time since the window that the costs in force were fitted to."),
		fallbacks:   desc("rule_fallbacks_total", "Requests that were to be weighed by their cost and were decided by the thresholds alone, by reason.", "reason"),
		factor:      desc("endpoint_restore_factor", "What restores have cost lately, as a multiple of what was expected.", "endpoint"),
		trialEnd:    desc("trial_remaining_seconds", "Time until the trial in force is dropped."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	d := m.descs
	for _, desc := range []*prometheus.Desc{
		d.decisions, d.tokens, d.started, d.reusable, d.finished, d.ttft, d.computed,
		d.endpoints, d.average, d.closed, d.sampleAge, d.transitions,
		d.revision, d.source, d.parameter, d.clamped, d.age, d.trialEnd,
		d.permitted, d.costs, d.costsAge, d.fallbacks, d.factor,
	} {
		ch <- desc
	}
	for _, v := range m.vectors {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	out := sink(ch)
	m.collectDecisions(out)
	m.collectFallbacks(out)
	m.collectCosts(out)
	m.collectTokens(out)
	for _, v := range m.vectors {
		v.Collect(ch)
	}
	if p := m.policy.Load(); p != nil {
		p.collectEndpoints(out, m.descs)
		p.collectInForce(out, m.descs)
	}
}

// sink takes metrics made on the spot.
type sink chan<- prometheus.Metric

func (s sink) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (m *metrics) collectDecisions(out sink) {
	for arm := range arms {
		for reason := range Reason(reasons) {
			var sum uint64
			for i := range m.shards {
				sum += m.shards[i].decisions[arm][reason].Load()
			}
			out.counter(m.descs.decisions, float64(sum), string(armNames[arm]), reason.Action().String(), reason.String())
		}
	}
}

func (m *metrics) collectFallbacks(out sink) {
	for why := judged + 1; why < fallbacks; why++ {
		var sum uint64
		for i := range m.shards {
			sum += m.shards[i].fallbacks[why].Load()
		}
		out.counter(m.descs.fallbacks, float64(sum), fallbackNames[why])
	}
}

func (m *metrics) collectCosts(out sink) {
	for action := range Action(actions) {
		for b, label := range costLabels {
			// Finished first: a request is never finished before it is started.
			m.collectFinished(out, action, b)
			var started, reusable uint64
			for i := range m.shards {
				started += m.shards[i].started[action][b].Load()
				reusable += m.shards[i].reusable[action][b].Load()
			}
			out.counter(m.descs.started, float64(started), action.String(), label)
			out.counter(m.descs.reusable, float64(reusable), action.String(), label)
		}
	}
}

// collectFinished leaves out pairs of buckets that no request has fallen into:
// most of them never do.
func (m *metrics) collectFinished(out sink, action Action, reusable int) {
	for b, label := range computedLabels {
		c := &m.costs[action][reusable][b]
		n := c.finished.Load()
		if n == 0 {
			continue
		}
		out.counter(m.descs.finished, float64(n), action.String(), costLabels[reusable], label)
		out.counter(m.descs.ttft, time.Duration(c.ttft.Load()).Seconds(), action.String(), costLabels[reusable], label)
		out.counter(m.descs.computed, float64(c.computed.Load()), action.String(), costLabels[reusable], label)
	}
}

// collectTokens merges the shards into one histogram, native and classic.
func (m *metrics) collectTokens(out sink) {
	var zero, sum, count uint64
	native := map[int]int64{}
	for i := range m.shards {
		c := &m.shards[i].tokens
		zero += c.zero.Load()
		sum += c.sum.Load()
		for b := range c.buckets {
			if n := c.buckets[b].Load(); n > 0 {
				native[b] += int64(n)
				count += n
			}
		}
	}
	h, err := prometheus.NewConstNativeHistogram(m.descs.tokens, count+zero, float64(sum), native, nil, zero,
		tokenSchema, prometheus.DefNativeHistogramZeroThreshold, time.Time{})
	if err != nil {
		h = prometheus.NewInvalidMetric(m.descs.tokens, err)
	}
	out <- &tokenHistogram{Metric: h, classic: classicBuckets(zero, native)}
}

// classicBuckets counts the same requests cumulatively: the bounds are ends of
// native buckets, too.
func classicBuckets(zero uint64, native map[int]int64) []*dto.Bucket {
	buckets := make([]*dto.Bucket, len(classicBounds))
	for i, bound := range classicBounds {
		count := zero
		for b, n := range native {
			if bound > 0 && b <= tokenBucket(bound) {
				count += uint64(n)
			}
		}
		end := float64(bound)
		buckets[i] = &dto.Bucket{CumulativeCount: &count, UpperBound: &end}
	}
	return buckets
}

// tokenHistogram adds classic buckets to a native histogram.
type tokenHistogram struct {
	prometheus.Metric
	classic []*dto.Bucket
}

// Write implements prometheus.Metric.
func (h *tokenHistogram) Write(to *dto.Metric) error {
	if err := h.Metric.Write(to); err != nil {
		return err
	}
	to.Histogram.Bucket = h.classic
	return nil
}

func (p *Policy) collectEndpoints(out sink, d *descs) {
	now, s := p.elapsed(), p.inForce.Load()
	followed := 0
	p.endpoints.each(now, func(name string, e *endpoint) {
		followed++
		limit := s.params[s.arm(e, name, now)].MaxWaitingRequests
		out.gauge(d.average, e.gate.average(), name)
		out.gauge(d.closed, bit(p.gated(limit, e, now)), name)
		out.gauge(d.sampleAge, time.Duration(now-e.gate.at.Load()).Seconds(), name)
		if s.rule != nil && e.restores != nil {
			out.gauge(d.factor, e.restores.factor(), name)
		}
		out.counter(d.transitions, float64(e.closings.Load()), name, "closed")
		out.counter(d.transitions, float64(e.openings.Load()), name, "open")
	})
	out.gauge(d.endpoints, float64(followed))
}

func (p *Policy) collectInForce(out sink, d *descs) {
	f := p.InForce()
	out.gauge(d.revision, float64(f.Revision))
	out.gauge(d.permitted, bit(p.config.LoadPolicy == Adaptive))
	for _, source := range []Source{SourceConfig, SourceStore, SourceExpired} {
		out.gauge(d.source, bit(source == f.Source), string(source))
	}
	if !p.config.Thresholds() {
		return
	}
	out.params(d, store.ArmBaseline, f.Baseline, f.BaselineClamped)
	if f.Source != SourceConfig {
		out.gauge(d.age, f.Age.Seconds())
	}
	for _, state := range []CostsState{CostsNone, CostsFresh, CostsExpired} {
		out.gauge(d.costs, bit(state == f.Costs), string(state))
	}
	if f.Costs != CostsNone {
		out.gauge(d.costsAge, f.CostsAge.Seconds())
	}
	if t := f.Trial; t != nil {
		out.params(d, store.ArmCandidate, t.Candidate, t.Clamped)
		out.gauge(d.trialEnd, t.ExpiresAt.Sub(p.now()).Seconds())
	}
}

func (s sink) params(d *descs, arm store.Arm, in store.Params, clamped bool) {
	tokens := float64(in.MinExternalReusableTokens)
	if in.MinExternalReusableTokens == store.Never {
		tokens = math.Inf(1)
	}
	s.gauge(d.parameter, tokens, string(arm), store.NameTokens)
	s.gauge(d.parameter, float64(in.MaxWaitingRequests), string(arm), store.NameWaiting)
	s.gauge(d.parameter, bit(in.LoadPolicy == store.Adaptive), string(arm), store.NameLoadPolicy)
	s.gauge(d.clamped, bit(clamped), string(arm))
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
