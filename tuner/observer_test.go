package tuner

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// answers is a Prometheus that says what it is told, engines' series to queries
// for vLLM and the plugin's to the others.
type answers struct {
	engines, plugin model.Value
	warnings        promv1.Warnings
	err             error
	queries         []string
}

func (a *answers) Query(_ context.Context, q string, _ time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	a.queries = append(a.queries, q)
	if a.err != nil {
		return nil, nil, nil, a.err
	}
	if strings.Contains(q, "vllm:") {
		return a.engines, a.warnings, nil, nil
	}
	return a.plugin, nil, nil, nil
}

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// series has one point each 15 s, the last one second before noon.
func series(name, pod string, labels map[string]string, values ...float64) *model.SampleStream {
	m := model.Metric{model.MetricNameLabel: model.LabelValue(name), "pod": model.LabelValue(pod)}
	for k, v := range labels {
		m[model.LabelName(k)] = model.LabelValue(v)
	}
	row := &model.SampleStream{Metric: m}
	last := noon.Add(-time.Second)
	for i, v := range values {
		at := last.Add(-15 * time.Second * time.Duration(len(values)-1-i))
		row.Values = append(row.Values, model.SamplePair{Timestamp: model.TimeFromUnixNano(at.UnixNano()), Value: model.SampleValue(v)})
	}
	return row
}

// engine serves 10 requests in the last window, 2 s each, TTFT 0.5 s.
func engine(pod string) model.Matrix {
	return model.Matrix{
		series(seriesE2ECount, pod, nil, 90, 100, 110),
		series(seriesE2ESum, pod, nil, 180, 200, 220),
		series(seriesTTFTCount, pod, nil, 90, 100, 110),
		series(seriesTTFTSum, pod, nil, 45, 50, 55),
		series(seriesTTFTBucket, pod, map[string]string{"le": "5"}, 90, 100, 109),
		series(seriesRunning, pod, nil, 3, 3, 4),
		series(seriesWaiting, pod, nil, 0, 0, 1),
		series(seriesGenerated, pod, nil, 900, 1000, 1100),
		series(seriesPromptTokens, pod, nil, 9000, 10000, 11000),
	}
}

func epp(pod string, revision ...float64) model.Matrix {
	return model.Matrix{
		series(seriesRevision, pod, nil, revision...),
		series(seriesAdaptive, pod, nil, 1, 1, 1),
		series(seriesDecisions, pod, map[string]string{"action": "load", "reason": "reusable"}, 1, 2, 8),
		series(seriesDecisions, pod, map[string]string{"action": "recompute", "reason": "queue_gate"}, 1, 2, 4),
		series(seriesCostStarted, pod, map[string]string{"action": "load", "reusable": "1024"}, 1, 2, 8),
		series(seriesCostReusable, pod, map[string]string{"action": "load", "reusable": "1024"}, 1100, 2200, 8800),
		series(seriesCostFinished, pod, map[string]string{"action": "load", "reusable": "1024", "computed": "256"}, 1, 2, 7),
	}
}

func testSettings() Settings {
	s := DefaultSettings()
	s.Name, s.Mode, s.Selector = "p", Enforce, `namespace="llm"`
	return s
}

func replace(m model.Matrix, row *model.SampleStream) model.Matrix {
	out := model.Matrix{}
	for _, r := range m {
		if r.Metric[model.MetricNameLabel] != row.Metric[model.MetricNameLabel] || r.Metric["pod"] != row.Metric["pod"] {
			out = append(out, r)
		}
	}
	return append(out, row)
}

func drop(m model.Matrix, name string) model.Matrix {
	var out model.Matrix
	for _, r := range m {
		if string(r.Metric[model.MetricNameLabel]) != name {
			out = append(out, r)
		}
	}
	return out
}

func TestSampleStates(t *testing.T) {
	two := append(engine("a"), engine("b")...)
	long := series(seriesE2ECount, "b", nil, 1)
	long.Values[0].Timestamp -= 60_000
	idle := engine("a")
	for _, name := range []string{seriesE2ECount, seriesE2ESum, seriesTTFTCount, seriesTTFTSum, seriesTTFTBucket, seriesRunning, seriesWaiting, seriesGenerated, seriesPromptTokens} {
		idle = replace(idle, series(name, "a", nil, 0, 0, 0))
	}
	for _, tc := range []struct {
		name    string
		engines model.Value
		change  func(*Settings, *answers)
		state   State
		why     string
	}{
		{name: "both engines", engines: two, state: OK},
		{name: "nothing in flight", engines: idle, state: Idle},
		{name: "no series", engines: model.Matrix{}, state: Unknown, why: "matches no series"},
		{name: "query fails", engines: two, change: func(_ *Settings, a *answers) { a.err = errors.New("connection refused") }, state: Unknown, why: "connection refused"},
		{name: "partial answer", engines: two, change: func(_ *Settings, a *answers) { a.warnings = promv1.Warnings{"store gateway is down"} }, state: Unknown, why: "may be partial"},
		{name: "not a matrix", engines: model.Vector{}, state: Unknown, why: "not a matrix"},
		{name: "an engine went dark", engines: append(engine("a"), long), state: Unknown, why: "engine b has sent nothing since"},
		{name: "too few engines", engines: two, change: func(s *Settings, _ *answers) { s.Endpoints = 3 }, state: Unknown, why: "2 engines answer, 3 are expected"},
		{name: "a series is missing", engines: drop(two, seriesTTFTSum), state: Unknown, why: "a exports no " + seriesTTFTSum},
		{name: "not a number", engines: replace(engine("a"), series(seriesE2ESum, "a", nil, 1, 2, math.NaN())), state: Unknown, why: "not a finite number"},
		{name: "infinite", engines: replace(engine("a"), series(seriesE2ESum, "a", nil, 1, 2, math.Inf(1))), state: Unknown, why: "not a finite number"},
		{name: "negative gauge", engines: replace(engine("a"), series(seriesWaiting, "a", nil, 0, 0, -1)), state: Unknown, why: "not negative"},
		{name: "the offload family is absent until its first event", engines: two, state: OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &answers{engines: tc.engines, plugin: epp("x", 1, 1, 1)}
			s := testSettings()
			if tc.change != nil {
				tc.change(&s, a)
			}
			got := (&observer{prom: a, settings: s}).sample(context.Background(), noon.Add(-15*time.Second), noon)
			if got.State != tc.state || !strings.Contains(got.Why, tc.why) {
				t.Errorf("state %s, why %q; want %s, %q", got.State, got.Why, tc.state, tc.why)
			}
		})
	}
}

func TestSampleValues(t *testing.T) {
	a := &answers{engines: append(engine("a"), engine("b")...), plugin: append(epp("x", 6, 6, 7), epp("y", 6, 6, 6)...)}
	got := (&observer{prom: a, settings: testSettings()}).sample(context.Background(), noon.Add(-15*time.Second), noon)
	s := got.Signals
	for name, pair := range map[string][2]float64{
		"seconds": {s.Seconds, 15}, "requests": {s.Requests, 20}, "mean e2e": {s.MeanE2E(), 2},
		"mean ttft": {s.MeanTTFT(), 0.5}, "within": {s.Within(), 0.9}, "in flight": {s.InFlight(), 10},
		"waiting": {s.Waiting(), 2}, "generated": {s.Generated, 200}, "engines": {float64(s.Engines), 2},
		"throughput": {s.Throughput(), 20. / 15}, "restores": {s.LookupSeconds + s.CopySeconds, 0},
		"oldest revision": {float64(got.Plugin.Oldest), 6}, "newest revision": {float64(got.Plugin.Newest), 7}, "replicas": {float64(got.Plugin.Replicas), 2},
		"loads": {got.Plugin.Loads, 12}, "gate stops": {got.Plugin.GateStops, 4},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, pair[0], pair[1])
		}
	}
	if !s.HasSLO {
		t.Error("the SLO's bucket was not recognised")
	}
	want := []CurvePoint{
		{Load: true, Reusable: 1024, Started: 12, ReusableTokens: 13200},
		{Load: true, Reusable: 1024, Computed: 256, Finished: 10},
	}
	if len(got.Plugin.Curve) != 2 || got.Plugin.Curve[0] != want[0] || got.Plugin.Curve[1] != want[1] {
		t.Errorf("curve %+v, want %+v", got.Plugin.Curve, want)
	}
}

func TestPluginStates(t *testing.T) {
	dark := epp("y", 1)[:1]
	dark[0].Values[0].Timestamp -= 60_000
	for _, tc := range []struct {
		name   string
		plugin model.Value
		state  State
		why    string
	}{
		{"both replicas", append(epp("x", 1, 1, 1), epp("y", 1, 1, 1)...), OK, ""},
		{"none", model.Matrix{}, Unknown, "check pluginSelector"},
		{"one dark", append(epp("x", 1, 1, 1), dark...), Unknown, "replica y has sent nothing"},
		{"no revision", epp("x", 1, 1, 1)[1:], Unknown, "exports no selective_kv_revision"},
		{"not a number", append(epp("x", 1, 1, 1), series(seriesCostTTFT, "x", map[string]string{"action": "load", "reusable": "1024", "computed": "256"}, 1, 2, math.NaN())), Unknown, "not a finite number"},
		{"not a power of two", append(epp("x", 1, 1, 1), series(seriesCostStarted, "x", map[string]string{"action": "load", "reusable": "1000"}, 1, 2, 3)), Unknown, "no bucket of tokens"},
		{"a counter below zero", append(epp("x", 1, 1, 1), series(seriesCostTTFT, "x", map[string]string{"action": "load", "reusable": "1024", "computed": "256"}, -1, -1, -1)), Unknown, "not a finite number"},
		{"a hostile bucket", append(epp("x", 1, 1, 1), series(seriesCostStarted, "x", map[string]string{"action": "load", "reusable": "1e9; drop"}, 1, 2, 3)), Unknown, "no bucket of tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &answers{engines: engine("a"), plugin: tc.plugin}
			got := (&observer{prom: a, settings: testSettings()}).sample(context.Background(), noon.Add(-15*time.Second), noon)
			if got.State != OK {
				t.Errorf("the engines' sample is %s: %s", got.State, got.Why)
			}
			if got.Plugin.State != tc.state || !strings.Contains(got.Plugin.Why, tc.why) {
				t.Errorf("plugin %s, why %q; want %s, %q", got.Plugin.State, got.Plugin.Why, tc.state, tc.why)
			}
		})
	}
}

// Whole numbers are never averaged: 5/15 fifteen times over is below 5.
func TestExpiredCandidateIsRead(t *testing.T) {
	for value, want := range map[float64]bool{0: false, 1: true} {
		a := &answers{engines: engine("a"), plugin: append(epp("x", 6, 6, 7), series(seriesSource, "x", map[string]string{"source": "expired"}, 0, value))}
		got := (&observer{prom: a, settings: testSettings()}).sample(context.Background(), noon.Add(-15*time.Second), noon)
		if got.Plugin.State != OK || got.Plugin.Expired != want {
			t.Errorf("source expired %v: %+v", value, got.Plugin)
		}
	}
}

func TestRevisionIsRead(t *testing.T) {
	for _, n := range []int{1, 2, 6, 7, 15} {
		for _, revision := range []float64{1, 2, 5, 746, 1 << 40} {
			values := make([]float64, n)
			for i := range values {
				values[i] = revision
			}
			row := series(seriesRevision, "x", nil, values...)
			for i := range row.Values { // all of them within the window
				row.Values[i].Timestamp = model.TimeFromUnixNano(noon.Add(-time.Duration(n-i) * 100 * time.Millisecond).UnixNano())
			}
			a := &answers{engines: engine("a"), plugin: model.Matrix{row}}
			got := (&observer{prom: a, settings: testSettings()}).sample(context.Background(), noon.Add(-15*time.Second), noon).Plugin
			if got.State != OK || got.Oldest != int64(revision) || got.Newest != int64(revision) {
				t.Errorf("%d points of revision %v are read as %d to %d: %s", n, revision, got.Oldest, got.Newest, got.Why)
			}
		}
	}
}

func TestWindowIncrease(t *testing.T) {
	w := window{from: model.TimeFromUnixNano(noon.Add(-31 * time.Second).UnixNano()), to: model.TimeFromUnixNano(noon.UnixNano())}
	for _, tc := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"grows", []float64{5, 7, 10}, 5},
		{"reset within", []float64{100, 105, 3}, 8},
		{"reset at once", []float64{100, 2, 5}, 5},
		{"first event within", []float64{4}, 4},
		{"flat", []float64{7, 7, 7}, 0},
	} {
		if got := w.increase(series("x", "a", nil, tc.values...).Values); got != tc.want {
			t.Errorf("%s: increase of %v = %v, want %v", tc.name, tc.values, got, tc.want)
		}
	}
}

func TestQueries(t *testing.T) {
	s := testSettings()
	s.Guard.TTFT = time.Second
	engines, plugin := engineQuery(s, 15*time.Second), pluginQuery(s, 15*time.Second)
	for _, want := range []string{`namespace="llm"`, `le=~"|1(\\.0)?"`, seriesE2ESum, "[1m45s]"} {
		if !strings.Contains(engines, want) {
			t.Errorf("%s lacks %s", engines, want)
		}
	}
	if !strings.Contains(plugin, `pool="p"`) {
		t.Errorf("%s does not select the pool", plugin)
	}
	for _, q := range []string{engines, plugin} {
		if err := checkMatchers(strings.TrimSuffix(strings.TrimPrefix(strings.Split(q, "[1m")[0], "{"), "}")); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
}

func TestCostIsASum(t *testing.T) {
	s := Signals{Seconds: 10, Requests: 20, E2ESeconds: 40, FirstTokens: 20, TTFTSeconds: 10, RunningSeconds: 30, WaitingSeconds: 10, LookupSeconds: 2}
	for _, tc := range []struct {
		o    Objective
		want float64
	}{
		{Objective{E2E: 1}, 2}, {Objective{TTFT: 1}, 0.5}, {Objective{Throughput: 1}, 2}, {Objective{Restore: 1}, 0.1},
		{Objective{E2E: 1, TTFT: 1}, 1.25},
	} {
		if got, ok := tc.o.Cost(s); !ok || math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%+v: cost %v, %v; want %v", tc.o, got, ok, tc.want)
		}
	}
	if c, ok := (Objective{E2E: 1, TTFT: 1}).Cost(Signals{Seconds: 10, Requests: 5, E2ESeconds: 1}); ok {
		t.Errorf("cost without a first token is %v; it is not known", c)
	}
	if c, ok := (Objective{E2E: 1}).Cost(Signals{Seconds: 10}); ok {
		t.Errorf("cost without a request is %v; it is not known", c)
	}
}
