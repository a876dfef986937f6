package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func gathered(t *testing.T, f *Fleet) map[string]*dto.MetricFamily {
	t.Helper()
	// Gatherers checks that families are consistent and sorted.
	families, err := prometheus.Gatherers{f.Endpoints()[0]}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, m := range families {
		byName[m.GetName()] = m
	}
	return byName
}

func TestVLLMNames(t *testing.T) {
	always := strings.Fields(`
		vllm:time_to_first_token_seconds vllm:inter_token_latency_seconds vllm:e2e_request_latency_seconds
		vllm:request_queue_time_seconds vllm:request_prefill_time_seconds vllm:request_decode_time_seconds
		vllm:prompt_tokens_total vllm:generation_tokens_total vllm:prompt_tokens_by_source_total
		vllm:request_success_total vllm:num_requests_running vllm:num_requests_waiting
		vllm:num_requests_waiting_by_reason vllm:kv_cache_usage_perc vllm:prefix_cache_queries_total
		vllm:prefix_cache_hits_total vllm:num_preemptions_total vllm:cache_config_info`)
	onEvent := strings.Fields(`
		vllm:external_prefix_cache_queries_total vllm:external_prefix_cache_hits_total
		vllm:kv_offload_load_bytes_total vllm:kv_offload_load_time_total vllm:kv_offload_load_size
		vllm:kv_offload_store_bytes_total vllm:kv_offload_store_time_total vllm:kv_offload_store_size
		vllm:kv_offload_lookup_async_delay_seconds
		vllm:kv_offload_tiering_read_bytes_total vllm:kv_offload_tiering_read_time_total
		vllm:kv_offload_tiering_write_bytes_total vllm:kv_offload_tiering_write_time_total`)

	f := start(t, "2k-c64", loading, 1)
	before := gathered(t, f)
	f.Advance(2 * time.Minute)
	after := gathered(t, f)
	for _, name := range always {
		if before[name] == nil || after[name] == nil {
			t.Errorf("%s is not always exposed", name)
		}
	}
	for _, name := range onEvent {
		if before[name] != nil {
			t.Errorf("%s is exposed before its first event", name)
		}
		if after[name] == nil {
			t.Errorf("%s is not exposed after two minutes of restores", name)
		}
	}
	if n := len(always) + len(onEvent); len(after) != n {
		t.Errorf("%d families; want %d", len(after), n)
	}
}

// Counters only grow, also when storage turns slow and quick again: a fall would
// be taken for a restarted engine.
func TestCountersNeverFall(t *testing.T) {
	f := start(t, "8k-c32", loading, 1)
	last := make(map[string]float64)
	for i, scenario := range []string{"8k-c32-slow-storage", "8k-c32", "mixed-c64-slow-storage", "4k-c64-cheap-prefill"} {
		change(t, f, scenario)
		f.Advance([]time.Duration{5 * time.Minute, 10 * time.Second}[i%2])
		for name, family := range gathered(t, f) {
			for i, m := range family.Metric {
				if family.GetType() != dto.MetricType_COUNTER {
					continue
				}
				series := fmt.Sprint(name, i)
				if v := m.GetCounter().GetValue(); v < last[series] {
					t.Errorf("%s, %s: %v after %v", scenario, name, v, last[series])
				} else {
					last[series] = v
				}
			}
		}
	}
}

func TestMetricsAgreeWithEachOther(t *testing.T) {
	f := start(t, "4k-c64", loading, 1)
	f.Advance(time.Minute)
	m := gathered(t, f)
	value := func(name string, label string) float64 {
		for _, x := range m[name].Metric {
			if label == "" || slices.ContainsFunc(x.Label, func(p *dto.LabelPair) bool { return p.GetValue() == label }) {
				return x.GetCounter().GetValue() + x.GetGauge().GetValue()
			}
		}
		t.Fatalf("no %s with %q", name, label)
		return 0
	}
	if w, c, d := value("vllm:num_requests_waiting", ""), value("vllm:num_requests_waiting_by_reason", "capacity"), value("vllm:num_requests_waiting_by_reason", "deferred"); w != c+d {
		t.Errorf("%v waiting; capacity %v and deferred %v", w, c, d)
	}
	if u := value("vllm:kv_cache_usage_perc", ""); u <= 0 || u > 1 {
		t.Errorf("usage %v; want above 0, at most 1", u)
	}
	ttft := m["vllm:time_to_first_token_seconds"].Metric[0].GetHistogram()
	if n := float64(ttft.GetSampleCount()) * 4352; n != value("vllm:prompt_tokens_total", "") {
		t.Errorf("%v prompt tokens by TTFT count, %v by counter", n, value("vllm:prompt_tokens_total", ""))
	}
	last := uint64(0)
	for _, b := range ttft.Bucket {
		if b.GetCumulativeCount() < last {
			t.Fatal("buckets are not cumulative")
		}
		last = b.GetCumulativeCount()
	}
	for _, name := range []string{"vllm:num_requests_running", "vllm:time_to_first_token_seconds"} {
		l := m[name].Metric[0].Label
		if len(l) != 2 || l[0].GetName() != "engine" || l[1].GetName() != "model_name" {
			t.Errorf("%s has labels %v; want engine and model_name", name, l)
		}
	}
}
