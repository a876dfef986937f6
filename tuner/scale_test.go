package tuner_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
)

// BenchmarkScale is one step of every pool, as each 15 s brings: 10 engines and 2
// replicas of the Endpoint Picker a pool, over HTTP from a synthetic Prometheus API,
// whose own cost is that of sending the answers.
func BenchmarkScale(b *testing.B) {
	for _, pools := range []int{10, 30, 100} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			api := &syntheticAPI{}
			server := httptest.NewServer(api)
			defer server.Close()
			client, err := connect.New(tuner.PrometheusConfig{URL: server.URL, Timeout: time.Minute, Concurrency: 4})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			before := liveHeap()
			all := make([]*tuner.Tuner, pools)
			for i := range all {
				all[i] = newPool(b, fmt.Sprintf("pool-%03d", i), client)
			}
			now := time.Unix(1_700_000_000, 0)
			step := func() {
				now = now.Add(15 * time.Second)
				for _, t := range all {
					if err := t.Step(b.Context(), now); err != nil {
						b.Fatal(err)
					}
				}
			}
			for range 12 { // three minutes
				step()
			}
			if why := all[0].Status().NotReady(); why != "" {
				b.Fatal(why)
			}
			api.queries.Store(0)
			api.bytes.Store(0)
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*pools), "µs/pool")
			b.ReportMetric(float64(api.queries.Load())/float64(b.N), "queries/op")
			b.ReportMetric(float64(api.bytes.Load())/float64(b.N)/1024, "KiB-answered/op")
			b.ReportMetric(float64(liveHeap()-before)/float64(pools)/1024, "KiB-heap/pool")
			runtime.KeepAlive(all)
		})
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func newPool(b *testing.B, name string, client *connect.Client) *tuner.Tuner {
	s := tuner.DefaultSettings()
	s.Name, s.Mode, s.Selector, s.Endpoints = name, tuner.Observe, fmt.Sprintf("namespace=%q", name), 10
	t, err := tuner.New(tuner.Options{Settings: s, Prometheus: client, QueryTimeout: time.Minute, Documents: store.NewMemory(name),
		Journal: forgetful{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// forgetful keeps no decision.
type forgetful struct{}

func (forgetful) Append(store.Decision) error { return nil }

// syntheticAPI answers instant queries for a range, alike for every pool.
type syntheticAPI struct {
	queries, bytes atomic.Int64

	mu      sync.Mutex
	at      string
	answers map[bool][]byte
}

// ServeHTTP implements http.Handler.
func (a *syntheticAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	engines := strings.Contains(r.FormValue("query"), "vllm:")
	answer := a.answer(r.FormValue("time"), engines)
	a.queries.Add(1)
	a.bytes.Add(int64(len(answer)))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

func (a *syntheticAPI) answer(at string, engines bool) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at != a.at {
		seconds, _ := strconv.ParseFloat(at, 64)
		a.at, a.answers = at, map[bool][]byte{true: render(seconds, 10, engineSeries), false: render(seconds, 2, pluginSeries())}
	}
	return a.answers[engines]
}

// render has, of each series of each pod, the eight points of the last two minutes;
// counters gain a tenth of a second's rate a second.
func render(at float64, pods int, series []string) []byte {
	var out strings.Builder
	out.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for pod := range pods {
		for i, labels := range series {
			if pod+i > 0 {
				out.WriteByte(',')
			}
			fmt.Fprintf(&out, `{"metric":{%s,"namespace":"llm","pod":"pod-%d","job":"pods"},"values":[`, labels, pod)
			for n := 7; n >= 0; n-- {
				t := at - float64(n*15) - 1
				value := (t - 1_699_000_000) / 10
				if strings.Contains(labels, "num_requests") || strings.Contains(labels, "adaptive") {
					value = 3
				}
				if strings.Contains(labels, "kv_revision") {
					value = 0
				}
				fmt.Fprintf(&out, `[%.3f,"%.3f"]`, t, value)
				if n > 0 {
					out.WriteByte(',')
				}
			}
			out.WriteString("]}")
		}
	}
	out.WriteString("]}}")
	return []byte(out.String())
}

var engineSeries = []string{
	`"__name__":"vllm:e2e_request_latency_seconds_sum"`, `"__name__":"vllm:e2e_request_latency_seconds_count"`,
	`"__name__":"vllm:time_to_first_token_seconds_sum"`, `"__name__":"vllm:time_to_first_token_seconds_count"`,
	`"__name__":"vllm:time_to_first_token_seconds_bucket","le":"5.0"`,
	`"__name__":"vllm:num_requests_running"`, `"__name__":"vllm:num_requests_waiting"`,
	`"__name__":"vllm:generation_tokens_total"`, `"__name__":"vllm:prompt_tokens_total"`,
	`"__name__":"vllm:prompt_tokens_by_source_total","source":"external_kv_transfer"`,
	`"__name__":"vllm:request_success_total","finished_reason":"stop"`,
	`"__name__":"vllm:kv_offload_load_time_total"`,
}

// pluginSeries are those of a replica whose requests have fallen into all buckets.
func pluginSeries() []string {
	series := []string{`"__name__":"selective_kv_revision"`, `"__name__":"selective_kv_adaptive_permitted"`}
	for _, reason := range []string{"reusable", "no_evidence"} {
		series = append(series, fmt.Sprintf(`"__name__":"selective_kv_decisions_total","action":"load","reason":%q`, reason))
	}
	for _, action := range []string{"load", "recompute"} {
		for reusable := 64; reusable <= 32768; reusable *= 2 {
			for _, name := range []string{"started", "reusable_tokens"} {
				series = append(series, fmt.Sprintf(`"__name__":"selective_kv_cost_%s_total","action":%q,"reusable":"%d"`, name, action, reusable))
			}
			for _, name := range []string{"finished", "ttft_seconds", "computed_tokens"} {
				series = append(series, fmt.Sprintf(`"__name__":"selective_kv_cost_%s_total","action":%q,"reusable":"%d","computed":"1024"`, name, action, reusable))
			}
		}
	}
	return series
}
