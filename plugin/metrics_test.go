package plugin

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvtuner/kvtuner/store"
)

// family gathers one family of series; nil if there is none.
func family(t testing.TB, g prometheus.Gatherer, name string) []*dto.Metric {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

func number(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

func sum(t testing.TB, g prometheus.Gatherer, name string) (total float64) {
	t.Helper()
	for _, m := range family(t, g, name) {
		total += number(m)
	}
	return total
}

// value1 is the value of the one series whose label has the value; NaN if there
// is none.
func value1(t testing.TB, g prometheus.Gatherer, name, label, value string) float64 {
	t.Helper()
	for _, m := range family(t, g, name) {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				return number(m)
			}
		}
	}
	return math.NaN()
}

func TestMetrics(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1024, 8))
	p.Observe("a", 8, clk.now())
	p.Decide(request("1", "a", 16))
	p.Decide(request("2", "b", 16))
	p.Decide(request("3", "b", 1))
	p.Decide(&Request{ID: "4", Endpoint: "b"})
	doc := withTrial(document(7, clk.now().Add(-3*time.Second), small), store.Params{MinExternalReusableTokens: store.Never}, all)
	if err := p.Apply(doc); err != nil {
		t.Fatal(err)
	}
	p.Decide(request("5", "b", 16))

	want := `
# HELP selective_kv_decisions_total Decisions, by arm, action and reason.
# TYPE selective_kv_decisions_total counter
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="invalid_evidence"} 0
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="no_evidence"} 1
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="preserved"} 0
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="probe_below_minimum"} 0
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="probe_queue_gate"} 0
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="probe_restore_dearer"} 0
selective_kv_decisions_total{action="load",arm="baseline",pool="p",reason="reusable"} 1
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="invalid_evidence"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="no_evidence"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="preserved"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="probe_below_minimum"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="probe_queue_gate"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="probe_restore_dearer"} 0
selective_kv_decisions_total{action="load",arm="candidate",pool="p",reason="reusable"} 0
selective_kv_decisions_total{action="recompute",arm="baseline",pool="p",reason="below_minimum"} 1
selective_kv_decisions_total{action="recompute",arm="baseline",pool="p",reason="disabled"} 0
selective_kv_decisions_total{action="recompute",arm="baseline",pool="p",reason="queue_gate"} 1
selective_kv_decisions_total{action="recompute",arm="baseline",pool="p",reason="restore_dearer"} 0
selective_kv_decisions_total{action="recompute",arm="candidate",pool="p",reason="below_minimum"} 1
selective_kv_decisions_total{action="recompute",arm="candidate",pool="p",reason="disabled"} 0
selective_kv_decisions_total{action="recompute",arm="candidate",pool="p",reason="queue_gate"} 0
selective_kv_decisions_total{action="recompute",arm="candidate",pool="p",reason="restore_dearer"} 0
# HELP selective_kv_document_age_seconds Time since the document in force was written.
# TYPE selective_kv_document_age_seconds gauge
selective_kv_document_age_seconds{pool="p"} 3
# HELP selective_kv_endpoint_gate_closed 1 if the queue gate is closed under the limit in force, else 0.
# TYPE selective_kv_endpoint_gate_closed gauge
selective_kv_endpoint_gate_closed{endpoint="a",pool="p"} 0
# HELP selective_kv_endpoint_gate_transitions_total Times the queue gate closed or opened.
# TYPE selective_kv_endpoint_gate_transitions_total counter
selective_kv_endpoint_gate_transitions_total{endpoint="a",pool="p",to="closed"} 1
selective_kv_endpoint_gate_transitions_total{endpoint="a",pool="p",to="open"} 0
# HELP selective_kv_endpoint_waiting_ewma Smoothed number of requests waiting, as of the last sample.
# TYPE selective_kv_endpoint_waiting_ewma gauge
selective_kv_endpoint_waiting_ewma{endpoint="a",pool="p"} 8
# HELP selective_kv_parameter Parameters in force; +Inf tokens recompute everything, 0 waiting is no gate, loadPolicy is 1 for adaptive.
# TYPE selective_kv_parameter gauge
selective_kv_parameter{arm="baseline",name="loadPolicy",pool="p"} 0
selective_kv_parameter{arm="baseline",name="maxWaitingRequests",pool="p"} 4
selective_kv_parameter{arm="baseline",name="minExternalReusableTokens",pool="p"} 512
selective_kv_parameter{arm="candidate",name="loadPolicy",pool="p"} 0
selective_kv_parameter{arm="candidate",name="maxWaitingRequests",pool="p"} 0
selective_kv_parameter{arm="candidate",name="minExternalReusableTokens",pool="p"} +Inf
# HELP selective_kv_revision Revision of the parameter document in force; 0 for static configuration.
# TYPE selective_kv_revision gauge
selective_kv_revision{pool="p"} 7
# HELP selective_kv_source 1 for where the parameters in force come from.
# TYPE selective_kv_source gauge
selective_kv_source{pool="p",source="config"} 0
selective_kv_source{pool="p",source="expired"} 0
selective_kv_source{pool="p",source="store"} 1
# HELP selective_kv_trial_remaining_seconds Time until the trial in force is dropped.
# TYPE selective_kv_trial_remaining_seconds gauge
selective_kv_trial_remaining_seconds{pool="p"} 597
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"selective_kv_decisions_total", "selective_kv_document_age_seconds", "selective_kv_endpoint_gate_closed",
		"selective_kv_endpoint_gate_transitions_total", "selective_kv_endpoint_waiting_ewma", "selective_kv_parameter",
		"selective_kv_revision", "selective_kv_source", "selective_kv_trial_remaining_seconds")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// Where the engine does not say in time what it computed, the evidence does: what
// the GPU lacks, less what is restored.
func TestComputedTokensFromEvidence(t *testing.T) {
	for _, tc := range []struct {
		name           string
		minimum        store.Tokens
		prompt, engine int
		bucket         string
		want           float64
	}{
		{"recomputed", 4096, 2000, -1, "1024", 2000 - 128},
		{"restored", 64, 2000, -1, "512", 2000 - 128 - 1024},
		{"restored to the last token", 64, 1152, -1, "0", 0},
		{"shorter than what is cached", 64, 100, -1, "0", 0},
		{"the engine knows better", 64, 2000, 300, "256", 300},
		{"unknown prompt", 64, 0, -1, "unknown", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _, reg := newPolicy(t, threshold(tc.minimum, 0))
			r := request("1", "a", 18)
			r.Evidence.Prompts[0].ByTier["gpu"] = 2
			r.Evidence.PromptTokens = tc.prompt
			p.ObserveFirstToken(p.Decide(r), time.Second, tc.engine)
			if got := value1(t, reg, "selective_kv_cost_computed_tokens_total", "computed", tc.bucket); got != tc.want {
				t.Errorf("%v tokens in bucket %s, want %v", got, tc.bucket, tc.want)
			}
		})
	}
}

func TestCostCounters(t *testing.T) {
	p, _, reg := newPolicy(t, threshold(1024, 0))
	load := p.Decide(request("1", "a", 16))       // 1024 tokens
	recompute := p.Decide(request("2", "a", 3))   // 192 tokens
	unfinished := p.Decide(request("3", "a", 16)) // never answers
	blind := p.Decide(&Request{ID: "4", Endpoint: "a"})
	whole := request("5", "a", 16)
	whole.Unstreamed = true
	p.Decide(whole)
	_ = unfinished
	p.ObserveFirstToken(load, 250*time.Millisecond, 256)
	p.ObserveFirstToken(recompute, 500*time.Millisecond, -1)
	p.ObserveFirstToken(blind, time.Second, 100)
	p.ObserveFirstToken(load, -time.Second, 0)
	p.ObserveOutput(load, 128)
	p.ObserveOutput(load, -1)

	for _, tt := range []struct {
		name, bucket string
		want         float64
	}{
		{"started", "1024", 2}, {"finished", "1024", 1}, {"ttft_seconds", "1024", 0.25}, {"reusable_tokens", "1024", 2 * 1024}, {"computed_tokens", "1024", 256},
	} {
		if got := value1(t, reg, "selective_kv_cost_"+tt.name+"_total", "reusable", tt.bucket); got != tt.want {
			t.Errorf("load, %s of %s: %v, want %v", tt.name, tt.bucket, got, tt.want)
		}
	}
	for name, want := range map[string]float64{"started": 3, "finished": 2, "ttft_seconds": 0.75, "computed_tokens": 256} {
		if got := sum(t, reg, "selective_kv_cost_"+name+"_total"); got != want {
			t.Errorf("%s in all: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string][2]float64{"request_ttft_seconds": {3, 1.75}, "request_output_tokens": {1, 128}} {
		var got [2]float64
		for _, m := range family(t, reg, "selective_kv_"+name) {
			got[0] += float64(m.GetHistogram().GetSampleCount())
			got[1] += m.GetHistogram().GetSampleSum()
		}
		if got != want {
			t.Errorf("%s: count and sum %v, want %v", name, got, want)
		}
	}
	for _, reason := range []string{sampleTTFT, sampleOutput} {
		if got := value1(t, reg, "selective_kv_samples_refused_total", "reason", reason); got != 1 {
			t.Errorf("%s refused: %v, want 1", reason, got)
		}
	}
}

func TestCostBuckets(t *testing.T) {
	for tokens, want := range map[int]string{
		0: "0", 63: "0", 64: "64", 127: "64", 128: "128", 1023: "512", 1024: "1024",
		65535: "32768", 65536: "65536+", maxTokens: "65536+",
	} {
		if got := costLabels[costBucket(tokens)]; got != want {
			t.Errorf("%d tokens: bucket %s, want %s", tokens, got, want)
		}
	}
}

// The histogram put together from the shards is the one that the client library
// makes of the same observations.
func TestTokenHistogramMatchesTheLibrary(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1, 0))
	bounds := make([]float64, len(classicBounds))
	for i, b := range classicBounds {
		bounds[i] = float64(b)
	}
	want := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "selective_kv_external_reusable_tokens", Help: "h", Buckets: bounds, NativeHistogramBucketFactor: 1.19,
	})
	rng := rand.New(rand.NewPCG(1, 2))
	observe := func(tokens int) {
		r := request("", "pod-"+string(rune('a'+rng.IntN(20))), tokens)
		r.Evidence.BlockSize = 1
		p.Observe(r.Endpoint, 0, clk.now())
		p.Decide(r)
		want.Observe(float64(min(tokens, 1<<tokenBits)))
	}
	for tokens := range 300 {
		observe(tokens)
	}
	for bit := range tokenBits + 2 {
		for d := -1; d <= 1; d++ {
			observe(max(1<<bit+d, 0))
		}
	}
	for range 2000 {
		observe(rng.IntN(1 << rng.IntN(tokenBits)))
	}

	var m dto.Metric
	if err := want.Write(&m); err != nil {
		t.Fatal(err)
	}
	w, g := m.GetHistogram(), family(t, reg, "selective_kv_external_reusable_tokens")[0].GetHistogram()
	if w.GetSampleCount() != g.GetSampleCount() || w.GetSampleSum() != g.GetSampleSum() || w.GetZeroCount() != g.GetZeroCount() || w.GetSchema() != g.GetSchema() {
		t.Errorf("count %d, sum %v, zero %d, schema %d, want %d, %v, %d, %d",
			g.GetSampleCount(), g.GetSampleSum(), g.GetZeroCount(), g.GetSchema(),
			w.GetSampleCount(), w.GetSampleSum(), w.GetZeroCount(), w.GetSchema())
	}
	if diff := cmp.Diff(classic(w), classic(g)); diff != "" {
		t.Errorf("classic buckets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(native(w), native(g)); diff != "" {
		t.Errorf("native buckets (-want +got):\n%s", diff)
	}
}

func classic(h *dto.Histogram) map[float64]uint64 {
	counts := map[float64]uint64{}
	for _, b := range h.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return counts
}

// native maps indexes to counts of the native buckets that are not empty.
func native(h *dto.Histogram) map[int32]int64 {
	counts := map[int32]int64{}
	var index int32
	var count int64
	deltas := h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += deltas[0]
			deltas = deltas[1:]
			if count != 0 {
				counts[index] = count
			}
			index++
		}
	}
	return counts
}

func TestForgetDropsStateAndSeriesButNoCounts(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1, 8))
	p.Observe("a", 8, clk.now())
	p.Decide(request("", "a", 1))
	p.Forget("a")
	p.Forget("a")
	p.Forget("unheard of")
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonReusable {
		t.Errorf("after Forget: %v, want reusable", got)
	}
	if got := sum(t, reg, "selective_kv_decisions_total"); got != 2 {
		t.Errorf("%v decisions, want 2", got)
	}
	for _, name := range []string{"waiting_ewma", "gate_closed", "sample_age_seconds", "gate_transitions_total"} {
		if got := family(t, reg, "selective_kv_endpoint_"+name); got != nil {
			t.Errorf("%s has series: %v", name, got)
		}
	}
	if got := sum(t, reg, "selective_kv_endpoints"); got != 0 {
		t.Errorf("%v endpoints, want 0", got)
	}
}

func TestIdleEndpointsAreDropped(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1, 8))
	p.Observe("gone", 8, clk.now())
	clk.advance(idleAfter + time.Second)
	if got := sum(t, reg, "selective_kv_endpoints"); got != 0 {
		t.Errorf("%v endpoints shown, want 0", got)
	}
	p.Observe("new", 8, clk.now())
	if p.endpoints.get("gone") != nil || p.endpoints.get("new") == nil || p.endpoints.count != 1 {
		t.Errorf("%d endpoints kept, want the new one alone", p.endpoints.count)
	}
}

func TestEndpointsAreBounded(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1, 8))
	name := func(i int) string { return "pod-" + time.Duration(i).String() }
	for i := range maxEndpoints + 3 {
		p.Observe(name(i), 8, clk.now())
	}
	if got := sum(t, reg, "selective_kv_endpoints"); got != maxEndpoints {
		t.Errorf("%v endpoints, want %d", got, maxEndpoints)
	}
	if got := value1(t, reg, "selective_kv_samples_refused_total", "reason", sampleNoRoom); got != 3 {
		t.Errorf("%v samples refused, want 3", got)
	}
	if got := p.Decide(request("", name(maxEndpoints), 1)).Reason; got != ReasonReusable {
		t.Errorf("an endpoint beyond the bound: %v, want reusable", got)
	}
	p.Forget(name(0))
	p.Observe(name(maxEndpoints), 8, clk.now())
	if got := p.Decide(request("", name(maxEndpoints), 1)).Reason; got != ReasonQueueGate {
		t.Errorf("with room again: %v, want queue_gate", got)
	}
}

func TestPoliciesShareARegistry(t *testing.T) {
	clk, reg := newClock(), prometheus.NewPedanticRegistry()
	made := func(pool string) *Policy {
		p, err := New(Options{Config: threshold(1024, 8), Pool: pool, Now: clk.now, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, other := made("p"), made("q")
	first.Decide(request("", "a", 16))
	other.Decide(request("", "a", 16))
	second := made("p")
	second.Decide(request("", "a", 16))
	if err := second.Apply(document(5, clk.now(), small)); err != nil {
		t.Fatal(err)
	}
	if got := sum(t, reg, "selective_kv_decisions_total"); got != 3 {
		t.Errorf("%v decisions, want 3: a new policy continues the counters", got)
	}
	if got := value1(t, reg, "selective_kv_revision", "pool", "p"); got != 5 {
		t.Errorf("revision %v, want the newer policy's 5", got)
	}
}

func TestForeignCollectorIsAnError(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "selective_kv_revision", Help: "h", ConstLabels: prometheus.Labels{"x": "y"}}))
	if _, err := New(Options{Config: threshold(1, 0), Pool: "p", Registerer: reg}); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("error %v, want one of registering", err)
	}
}
