package adapter

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// TestMetricsClash: a family of the same name and another shape is an error, not
// a silent loss.
func TestMetricsClash(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "selective_kv_adapter_faults_total", Help: "x"}))
	if _, err := newMetrics("p", registry); err == nil || !strings.Contains(err.Error(), "selective_kv_adapter_faults_total") {
		t.Errorf("error %v, want one that names the family", err)
	}
}

func document(revision int64, minimum store.Tokens) *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion, Pool: "qwen", Revision: revision, UpdatedAt: time.Now().UTC(),
		Baseline: store.Params{MinExternalReusableTokens: minimum},
	}
}

// TestParameters follows a file from before it exists to the plugin's end.
func TestParameters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qwen.json")
	f := newFixture(t, `{"tuning":{"file":"`+path+`"},`+threshold[1:])
	if in := f.policy.InForce(); in.Source != plugin.SourceConfig {
		t.Fatalf("in force %+v before there is a document", in)
	}
	writer, err := store.OpenFile(store.FileOptions{Path: path, Pool: "qwen"})
	if err != nil {
		t.Fatal(err)
	}
	for revision := int64(1); revision <= 3; revision++ {
		if err := writer.Swap(context.Background(), document(revision, store.Tokens(revision))); err != nil {
			t.Fatal(err)
		}
		f.await(revision)
	}
	f.Decide(t.Context(), routed(false, little))
	if f.decisions(plugin.ReasonReusable) != 1 {
		t.Error("the document's parameters are not in force")
	}
}

// TestParametersAtStart: what the file says is in force before the first request.
func TestParametersAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qwen.json")
	writer, err := store.OpenFile(store.FileOptions{Path: path, Pool: "qwen"})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Swap(context.Background(), document(1, 7)); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, `{"tuning":{"file":"`+path+`"},`+threshold[1:])
	if in := f.policy.InForce(); in.Revision != 1 {
		t.Errorf("revision %d in force, want 1", in.Revision)
	}
}

// await returns once the plugin says that the revision is in force.
func (f *fixture) await(revision int64) {
	for got := range f.inForce {
		if got == revision {
			return
		}
	}
}

// inForce is a log handler that passes on the revisions put in force.
type inForce chan int64

func (inForce) Enabled(context.Context, slog.Level) bool { return true }
func (c inForce) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c inForce) WithGroup(string) slog.Handler          { return c }
func (c inForce) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "parameters in force" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "revision" {
			c <- a.Value.Int64()
		}
		return true
	})
	return nil
}

func TestUpdate(t *testing.T) {
	f := newFixture(t, threshold)
	f.update(store.Update{Document: document(2, 5)})
	f.update(store.Update{Document: document(1, 9)})
	f.update(store.Update{Err: store.ErrInvalid})
	f.update(store.Update{Err: store.ErrNotFound})
	if in := f.policy.InForce(); in.Revision != 2 || in.Baseline.MinExternalReusableTokens != 5 {
		t.Errorf("in force %+v, want revision 2", in)
	}
	for _, reason := range []string{"older_revision", "invalid"} {
		if got := f.counter("selective_kv_documents_refused_total", "reason", reason); got != 1 {
			t.Errorf("refused as %s %g times, want once", reason, got)
		}
	}
	if got := f.counter("selective_kv_documents_refused_total"); got != 2 {
		t.Errorf("%g refusals: a file that is not there is none", got)
	}
}

// TestEverythingAtOnce is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	f := newFixture(t, threshold)
	text := scrape(t, "vllm:num_requests_waiting 7\n")
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			id := [...]EndpointID{a, b}[worker%2]
			for range 200 {
				r := routed(true, little)
				f.Routed(id, Load{Waiting: worker, At: f.clock})
				f.Decide(t.Context(), r)
				f.Scraped(id, text)
				f.ResponseHeader(r.Key, stream, r.Body)
				f.ResponseBody(r.Key, silent)
				f.sweep(f.clock)
				f.Removed(id)
				f.Added(id)
				f.ResponseBody(r.Key, ended)
			}
		})
	}
	all.Wait()
	if got := f.counter("selective_kv_request_ttft_seconds"); got != 800 {
		t.Errorf("%g first tokens of 800 requests", got)
	}
	if got := f.inFlight.n.Load(); got != 0 {
		t.Errorf("%d requests remembered after all ended", got)
	}
}

// TestParametersFromAConfigMap: the names reach what opens it, and its documents
// the policy.
func TestParametersFromAConfigMap(t *testing.T) {
	config, err := ParseConfig([]byte(`{"tuning":{"configMap":{"namespace":"llm","name":"kv"}},` + threshold[1:]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Options{Config: config}); err == nil || !strings.Contains(err.Error(), "tuning.configMap") {
		t.Errorf("without Kubernetes: %v", err)
	}
	memory := store.NewMemory("qwen")
	if err := memory.Swap(t.Context(), document(1, 7)); err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), Options{Config: config, OpenConfigMap: func(m plugin.ConfigMap, pool string, _ *slog.Logger) (Watcher, error) {
		if want := (plugin.ConfigMap{Namespace: "llm", Name: "kv", Key: plugin.DefaultConfigMapKey}); m != want || pool != "qwen" {
			t.Errorf("opens %+v of pool %s", m, pool)
		}
		return memory, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if in := a.policy.InForce(); in.Revision != 1 {
		t.Errorf("revision %d in force at start, want 1", in.Revision)
	}
	a.update(store.Update{Err: &store.StoppedError{Where: "key stop"}})
	if in := a.policy.InForce(); in.Source != plugin.SourceConfig {
		t.Errorf("in force %+v under the kill switch", in)
	}
}
