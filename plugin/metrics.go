package plugin

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons of refused samples, documents: closed sets of label values.
const (
	sampleNegative = "negative_waiting"
	sampleFuture   = "future"
	sampleNoRoom   = "too_many_endpoints"
	sampleRunning  = "negative_running"
	sampleTTFT     = "negative_ttft"
	sampleOutput   = "negative_output"

	documentInvalid  = "invalid"
	documentPool     = "other_pool"
	documentRevision = "older_revision"
	documentStatic   = "static_policy"
	documentWatch    = "watch"
)

var (
	sampleReasons   = []string{sampleNegative, sampleRunning, sampleFuture, sampleNoRoom, sampleTTFT, sampleOutput}
	documentReasons = []string{documentInvalid, documentPool, documentRevision, documentStatic, documentWatch}
)

// vLLM's buckets of time to first token, so that both sides compare.
var ttftBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}

// shards is how many copies of the per-decision counters there are: one for each
// core, so that cores do not wait for one another's cache lines. With more cores
// some share one.
const shards = 64

// metrics are the series of one pool. Counters outlive policies and endpoints:
// they never go down.
type metrics struct {
	shards           [shards]shard
	idle             sync.Pool // of *shard; a core finds its own there again
	next             atomic.Uint32
	costs            [actions][costBuckets][costBuckets + 1]cost
	ttft             [arms][actions]prometheus.Observer
	output           [arms][actions]prometheus.Observer
	refusedSamples   *prometheus.CounterVec
	refusedDocuments *prometheus.CounterVec
	refusedBodies    *prometheus.CounterVec
	vectors          []prometheus.Collector
	descs            *descs
	policy           atomic.Pointer[Policy] // whose gauges are shown
}

// shard counts the decisions made on one core.
type shard struct {
	decisions [arms][reasons]atomic.Uint64
	started   [actions][costBuckets]atomic.Uint64
	reusable  [actions][costBuckets]atomic.Uint64 // tokens
	fallbacks [fallbacks]atomic.Uint64
	tokens    tokenCounts
	_         [64]byte // keeps shards off each other's cache lines
}

// cost sums what became of requests of one action, by reusable and by computed
// tokens.
type cost struct {
	finished atomic.Uint64
	ttft     atomic.Int64 // nanoseconds
	computed atomic.Uint64
	_        [40]byte
}

// unknownComputed is the bucket of requests whose computed tokens are not known.
const unknownComputed = costBuckets

func (m *metrics) addCost(d Decision, ttft time.Duration, computed int) {
	bucket := unknownComputed
	if computed >= 0 {
		bucket = costBucket(computed)
	}
	c := &m.costs[d.Action][costBucket(d.ReusableTokens)][bucket]
	c.ttft.Add(int64(ttft))
	c.computed.Add(uint64(max(computed, 0)))
	c.finished.Add(1)
}

func newMetrics(pool string) *metrics {
	labels := prometheus.Labels{"pool": pool}
	m := &metrics{descs: newDescs(labels)}
	m.idle.New = func() any { return &m.shards[m.next.Add(1)%shards] }
	m.refusedSamples = m.counters(labels, "selective_kv_samples_refused_total", "Observations that were refused, by reason.", sampleReasons)
	m.refusedDocuments = m.counters(labels, "selective_kv_documents_refused_total", "Parameter documents that were refused or could not be read, by reason.", documentReasons)
	m.refusedBodies = m.counters(labels, "selective_kv_bodies_refused_total", "Request bodies left as they are because editing them would lose client data, by reason.", bodyReasons)
	m.ttft = m.histograms(labels, "selective_kv_request_ttft_seconds", "Time to first token of streamed requests.", ttftBuckets)
	m.output = m.histograms(labels, "selective_kv_request_output_tokens", "Output tokens of finished requests.", prometheus.ExponentialBuckets(1, 2, 17))
	return m
}

func (m *metrics) counters(labels prometheus.Labels, name, help string, reasons []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, []string{"reason"})
	for _, reason := range reasons {
		v.WithLabelValues(reason)
	}
	m.vectors = append(m.vectors, v)
	return v
}

func (m *metrics) histograms(labels prometheus.Labels, name, help string, buckets []float64) (o [arms][actions]prometheus.Observer) {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: labels, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"arm", "action"})
	for arm := range o {
		for action := range o[arm] {
			o[arm][action] = v.WithLabelValues(string(armNames[arm]), Action(action).String())
		}
	}
	m.vectors = append(m.vectors, v)
	return o
}

// register returns m, or the metrics of the same pool that are there already.
func register(m *metrics, r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return m, nil
	}
	err := r.Register(m)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*metrics); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w: give the policy a registry without another collector of selective_kv_ series", err)
	}
	return m, nil
}

// count counts one decision; timed says that its first token will be seen.
func (m *metrics) count(arm int, d *Decision, timed bool) {
	s := m.idle.Get().(*shard)
	defer m.idle.Put(s)
	s.decisions[arm][d.Reason].Add(1)
	if !d.Evidence {
		return
	}
	s.tokens.add(d.ReusableTokens)
	if timed {
		bucket := costBucket(d.ReusableTokens)
		s.started[d.Action][bucket].Add(1)
		s.reusable[d.Action][bucket].Add(uint64(d.ReusableTokens))
	}
}

// fellBack counts a request that could not be weighed by its cost.
func (m *metrics) fellBack(why fallback) {
	s := m.idle.Get().(*shard)
	s.fallbacks[why].Add(1)
	m.idle.Put(s)
}

func (m *metrics) bodyRefused(reason string) {
	if m != nil {
		m.refusedBodies.WithLabelValues(reason).Inc()
	}
}
