package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
)

// series of an engine.
type series int

const (
	e2eSum series = iota
	e2eCount
	ttftSum
	ttftCount
	ttftBucket
	running
	waiting
	generated
	promptTokens
	externalTokens
	finishedStop
	finishedError
	lookupDelay
	loadTime
)

// exposed names the series; the first ones are there from the start, those of
// late only after their first event.
var exposed = []struct {
	series series
	name   string
	label  string
	value  string
	late   bool
}{
	{e2eSum, "vllm:e2e_request_latency_seconds_sum", "", "", false},
	{e2eCount, "vllm:e2e_request_latency_seconds_count", "", "", false},
	{ttftSum, "vllm:time_to_first_token_seconds_sum", "", "", false},
	{ttftCount, "vllm:time_to_first_token_seconds_count", "", "", false},
	{ttftBucket, "vllm:time_to_first_token_seconds_bucket", "le", "5.0", false},
	{running, "vllm:num_requests_running", "", "", false},
	{waiting, "vllm:num_requests_waiting", "", "", false},
	{generated, "vllm:generation_tokens_total", "", "", false},
	{promptTokens, "vllm:prompt_tokens_total", "", "", false},
	{externalTokens, "vllm:prompt_tokens_by_source_total", "source", "external_kv_transfer", true},
	{finishedStop, "vllm:request_success_total", "finished_reason", "stop", true},
	{finishedError, "vllm:request_success_total", "finished_reason", "error", true},
	{lookupDelay, "vllm:kv_offload_lookup_async_delay_seconds_sum", "", "", true},
	{loadTime, "vllm:kv_offload_load_time_total", "", "", true},
}

// history is how long points are kept: longer than any query reaches.
const history = 6 * time.Minute

// recorded is one series as Prometheus keeps it.
type recorded struct {
	metric model.Metric
	plugin bool
	points []model.SamplePair
}

// scraper keeps what was scraped and answers the tuner's range selectors.
type scraper struct {
	byKey map[string]*recorded
	order []*recorded
	key   []byte // of the series at hand
}

func newScraper() *scraper { return &scraper{byKey: map[string]*recorded{}} }

// record a point of the series s.key. As in a TSDB, one that is not newer than the
// last is refused.
func (s *scraper) record(plugin bool, at time.Time, v float64, metric func() model.Metric) (taken bool) {
	r := s.byKey[string(s.key)]
	if r == nil {
		r = &recorded{metric: metric(), plugin: plugin}
		s.byKey[string(s.key)] = r
		s.order = append(s.order, r)
	}
	ts := model.TimeFromUnixNano(at.UnixNano())
	if n := len(r.points); n > 0 && r.points[n-1].Timestamp >= ts {
		return false
	}
	r.points = append(r.points, model.SamplePair{Timestamp: ts, Value: model.SampleValue(v)})
	oldest := ts.Add(-history)
	for r.points[0].Timestamp < oldest {
		r.points = r.points[1:]
	}
	return true
}

func (s *scraper) scrapeEngine(e *engine, at time.Time) {
	e.counters[running], e.counters[waiting] = e.running, e.waiting
	for _, x := range exposed {
		v := e.counters[x.series]
		if x.late && v == 0 {
			continue
		}
		s.key = append(append(s.key[:0], e.name...), ' ', byte(x.series))
		s.record(false, at.Add(e.skew), v, func() model.Metric {
			m := model.Metric{model.MetricNameLabel: model.LabelValue(x.name), "pod": model.LabelValue(e.name), "namespace": namespace}
			if x.label != "" {
				m[model.LabelName(x.label)] = model.LabelValue(x.value)
			}
			return m
		})
	}
}

// prefixes of the plugin's series that the tuner reads.
var prefixes = []string{"selective_kv_revision", "selective_kv_source", "selective_kv_decisions_total", "selective_kv_cost_"}

// collector takes the plugin's metrics without a registry: gathering all of them,
// sorted and checked, would take most of a schedule's time.
type collector struct {
	prometheus.Collector
	names map[*prometheus.Desc]string // empty for what nobody reads
}

func (c *collector) Register(m prometheus.Collector) error { c.Collector = m; return nil }
func (c *collector) MustRegister(...prometheus.Collector)  {}
func (c *collector) Unregister(prometheus.Collector) bool  { return false }

func (c *collector) name(d *prometheus.Desc) string {
	name, known := c.names[d]
	if !known {
		// A Desc keeps its name to itself, but shows it.
		_, name, _ = strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			name = ""
		}
		c.names[d] = name
	}
	return name
}

func (s *scraper) scrapeReplica(r *replica, at time.Time) error {
	metrics := make(chan prometheus.Metric, 1024) // more than a plugin has: Collect does not block
	r.metrics.Collect(metrics)
	close(metrics)
	r.refused = true
	for m := range metrics {
		name := r.metrics.name(m.Desc())
		if name == "" {
			continue
		}
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			return fmt.Errorf("scraping %s: %w", r.name, err)
		}
		s.key = append(append(append(s.key[:0], r.name...), ' '), name...)
		for _, l := range d.Label {
			s.key = append(append(s.key, ' '), l.GetValue()...)
		}
		taken := s.record(true, at.Add(r.scrapeSkew), d.GetCounter().GetValue()+d.GetGauge().GetValue(), func() model.Metric {
			out := model.Metric{model.MetricNameLabel: model.LabelValue(name), "pod": model.LabelValue(r.name)}
			for _, l := range d.Label {
				out[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
			}
			return out
		})
		r.refused = r.refused && !taken
	}
	return nil
}

// answer a query such as {...}[2m]: the points of every series in (at-range, at].
func (s *scraper) answer(q string, at time.Time) (model.Matrix, time.Duration, error) {
	open := strings.LastIndex(q, "[")
	if open < 0 || !strings.HasSuffix(q, "]") {
		return nil, 0, fmt.Errorf("query %s is no range selector", q)
	}
	reach, err := model.ParseDuration(q[open+1 : len(q)-1])
	if err != nil {
		return nil, 0, fmt.Errorf("query %s: %w", q, err)
	}
	plugin := isPlugin(q)
	to := model.TimeFromUnixNano(at.UnixNano())
	from := to.Add(-time.Duration(reach))
	out := model.Matrix{}
	for _, r := range s.order {
		if r.plugin != plugin {
			continue
		}
		first, last := 0, len(r.points)
		for first < last && r.points[first].Timestamp <= from {
			first++
		}
		for last > first && r.points[last-1].Timestamp > to {
			last--
		}
		if first < last {
			out = append(out, &model.SampleStream{Metric: r.metric, Values: slices.Clone(r.points[first:last])})
		}
	}
	return out, time.Duration(reach), nil
}

// query is one question of a tuner's.
type query struct {
	ctx    context.Context
	text   string
	at     time.Time
	rng    *rand.Rand
	answer model.Matrix
}

// incomplete tells that something which ought to be in the answer is not: fewer
// sources than expected, or one that has gone silent.
func (q query) incomplete(expected int, scrape time.Duration) bool {
	newest := map[model.LabelValue]model.Time{}
	for _, row := range q.answer {
		pod := row.Metric["pod"]
		newest[pod] = max(newest[pod], row.Values[len(row.Values)-1].Timestamp)
	}
	if len(newest) < max(expected, 1) {
		return true
	}
	silent := model.TimeFromUnixNano(q.at.UnixNano()).Add(-scrape*5/2 - time.Millisecond)
	for _, t := range newest {
		if t < silent {
			return true
		}
	}
	return false
}

type result struct {
	value    model.Value
	warnings promv1.Warnings
	err      error
}

// isPlugin tells a question about the plugin from one about the engines.
func isPlugin(q string) bool { return strings.Contains(q, "selective_kv") }
