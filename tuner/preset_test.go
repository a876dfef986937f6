package tuner

import (
	"context"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// as exposes an engine's series under other names.
func as(rows model.Matrix, rename func(string) string) model.Matrix {
	var out model.Matrix
	for _, row := range rows {
		renamed := *row
		renamed.Metric = row.Metric.Clone()
		renamed.Metric[model.MetricNameLabel] = model.LabelValue(rename(string(row.Metric[model.MetricNameLabel])))
		out = append(out, &renamed)
	}
	return out
}

func prefixed(prefix string) func(string) string {
	return func(name string) string { return prefix + strings.TrimPrefix(name, vllmPrefix) }
}

func observeWith(m Metrics, rows model.Matrix) Sample {
	s := testSettings()
	s.Mode, s.Metrics, s.TensorParallel = Observe, m, 2
	a := &byName{engines: rows, plugin: epp("x", 1, 1, 1)}
	return (&observer{prom: a, settings: s}).sample(context.Background(), noon.Add(-15*time.Second), noon)
}

func TestPresetsSeeTheirSetUp(t *testing.T) {
	vllm := engine("a")
	external := series(seriesBySource, "a", map[string]string{labelSource: sourceExternal}, 0, 100, 300)
	load := series(seriesLoadTime, "a", nil, 0, 1, 5)
	sglang := strings.NewReplacer("vllm:num_requests_running", "sglang:num_running_reqs", "vllm:num_requests_waiting", "sglang:num_queue_reqs",
		seriesBySource, "sglang:load_back_tokens_total", seriesLoadTime, "sglang:load_back_duration_seconds_sum", "vllm:", "sglang:").Replace
	lmcache := strings.NewReplacer(seriesBySource, "lmcache:num_hit_tokens_total", seriesLoadTime, "lmcache:time_to_retrieve_sum").Replace
	all := append(append(model.Matrix{}, vllm...), external, load)
	for name, rows := range map[string]model.Matrix{
		"": all, "vllm": all, "llm-d": all, "gie": all,
		"kserve": as(all, prefixed("kserve_vllm:")), "otel": as(all, prefixed("vllm_")),
		"sglang": as(all, sglang), "lmcache": as(all, lmcache),
	} {
		got := observeWith(Metrics{Preset: name}, rows)
		if got.State != OK || got.Signals.Requests != 10 || got.Signals.External != 200 || got.Signals.CopySeconds != 2 || got.Signals.WaitingSeconds != 15 {
			t.Errorf("%q: %s %s %+v", name, got.State, got.Why, got.Signals)
		}
	}
	if got := observeWith(Metrics{Preset: "otel"}, as(all, prefixed("kserve_vllm_"))); got.State != OK || got.Signals.Requests != 10 {
		t.Errorf("otel after kserve: %s %s", got.State, got.Why)
	}
	if got := observeWith(Metrics{Preset: "kserve"}, all); got.State != Unknown || !strings.Contains(got.Why, `metrics.preset "kserve"`) {
		t.Errorf("the wrong preset: %s %q", got.State, got.Why)
	}
}

// byName answers the query for the plugin with its series, any other with the
// engines'.
type byName struct{ engines, plugin model.Matrix }

func (a *byName) Query(_ context.Context, q string, _ time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	if strings.Contains(q, "selective_kv_") {
		return a.plugin, nil, nil, nil
	}
	return a.engines, nil, nil, nil
}

func TestAlternativesAreNeverSummed(t *testing.T) {
	rows := append(engine("a"),
		series(seriesLoadTime, "a", nil, 0, 0, 4),
		series("vllm:kv_offload_total_time_total", "a", map[string]string{"transfer_type": "CPU_to_GPU"}, 0, 0, 4),
		series("vllm:kv_offload_total_time_total", "a", map[string]string{"transfer_type": "GPU_to_CPU"}, 0, 0, 90),
		series("vllm:external_prefix_cache_hits_total", "a", nil, 0, 0, 500),
	)
	if got := observeWith(Metrics{}, rows).Signals; got.CopySeconds != 2 || got.External != 500 {
		t.Errorf("copies %v s, %v tokens restored; want 2 and 500", got.CopySeconds, got.External)
	}
	older := append(engine("b"), series("vllm:kv_offload_total_time_total", "b", map[string]string{"transfer_type": "CPU_to_GPU"}, 0, 0, 6))
	if got := observeWith(Metrics{}, append(rows, older...)).Signals; got.CopySeconds != 5 {
		t.Errorf("copies of engines of two versions: %v s, want 5", got.CopySeconds)
	}
}

func TestNamesOverrideThePreset(t *testing.T) {
	rows := as(engine("a"), func(name string) string {
		return strings.NewReplacer("vllm:e2e_request_latency_seconds", "mine", seriesWaiting, "queue").Replace(name)
	})
	got := observeWith(Metrics{Names: []string{"e2e=mine", "waiting = queue"}}, rows)
	if got.State != OK || got.Signals.E2ESeconds != 20 || got.Signals.WaitingSeconds != 15 {
		t.Errorf("%s %s %+v", got.State, got.Why, got.Signals)
	}
	if got := observeWith(Metrics{Names: []string{"e2e=mine"}}, rows); !strings.Contains(got.Why, seriesWaiting) {
		t.Errorf("why %q does not name what is missing", got.Why)
	}
}

func TestMetricsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		m    Metrics
		mode Mode
		want string
	}{
		{Metrics{Preset: "vllm"}, Enforce, ""},
		{Metrics{Preset: "sglang"}, Observe, ""},
		{Metrics{Preset: "sglang"}, Enforce, "SGLang has no max_load_tokens"},
		{Metrics{Preset: "triton"}, Observe, `"triton" is not allowed; use vllm, kserve, otel, llm-d, gie, lmcache, sglang`},
		{Metrics{Names: []string{"latency=x"}}, Observe, `"latency=x" is no signal`},
		{Metrics{Names: []string{"e2e"}}, Observe, "not the name of a metric"},
		{Metrics{Names: []string{"e2e=a b"}}, Observe, `"a b" is not the name of a metric`},
	} {
		err := tc.m.validate(tc.mode)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.m, err, tc.want)
		}
	}
}

// Every preset has names for what a sample cannot do without.
func TestPresetsAreComplete(t *testing.T) {
	for _, p := range Presets() {
		n := Metrics{Preset: p.Name}.names()
		stands := map[string]bool{}
		for _, m := range n.of {
			stands[m.series] = true
		}
		for _, s := range signals {
			for _, series := range s.series {
				if s.required && !stands[series] {
					t.Errorf("%s has no name for %s", p.Name, series)
				}
			}
		}
		if len(p.EndpointLabels) == 0 || p.About == "" {
			t.Errorf("%s has no labels, or does not say what it is", p.Name)
		}
	}
}
