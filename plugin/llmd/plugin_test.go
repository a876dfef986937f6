package llmd

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handle(ctx context.Context, options ...fwkplugin.HandleOption) fwkplugin.Handle {
	return fwkplugin.NewEppHandle(ctx, nil, options...)
}

// TestFactory makes two instances on the EPP's own registry: two plugins of one
// pool must not fail on the second.
func TestFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"one", "two"} {
		made, err := Factory(name, fwkplugin.StrictDecoder(json.RawMessage(threshold)), handle(ctx, fwkplugin.WithMetricsRecorder(registry)))
		if err != nil {
			t.Fatal(err)
		}
		if got := made.TypedName(); got != (fwkplugin.TypedName{Type: PluginType, Name: name}) {
			t.Errorf("named %v", got)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		names[family.GetName()] = true
	}
	for _, want := range []string{"selective_kv_decisions_total", "selective_kv_adapter_faults_total", "selective_kv_adapter_skipped_total"} {
		if !names[want] {
			t.Errorf("%s is not on the EPP's registry", want)
		}
	}
}

// TestFactoryWithoutMetrics: an EPP may have no recorder.
func TestFactoryWithoutMetrics(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := Factory("p", fwkplugin.StrictDecoder(json.RawMessage(threshold)), handle(ctx)); err != nil {
		t.Error(err)
	}
}

func TestFactoryRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		parameters string
		want       []string
	}{
		"no parameters":  {"", []string{"plugin p", "parameters"}},
		"bad value":      {`{"pool":"q","loadPolicy":"x"}`, []string{"plugin p", "loadPolicy"}},
		"no pool":        {`{"loadPolicy":"disable"}`, []string{"plugin p", "pool"}},
		"repeated field": {`{"pool":"q","loadPolicy":"disable","loadPolicy":"disable"}`, []string{"plugin p", "loadPolicy"}},
		"config map":     {`{"pool":"q","loadPolicy":"threshold","minExternalReusableTokens":1,"tuning":{"configMap":{"name":"kv"}}}`, []string{"plugin p", "tuning.configMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Factory("p", fwkplugin.StrictDecoder(json.RawMessage(test.parameters)), handle(context.Background()))
			if !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("error %v, want one that wraps ErrInvalid", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// TestExperimental: the EPP refuses the plugin unless experiments are allowed.
func TestExperimental(t *testing.T) {
	Register()
	h := handle(context.Background())
	h.AddPlugin(PluginType, newFixture(t, threshold).Plugin)
	if err := fwkplugin.ValidatePluginStability(h, false); err == nil || !strings.Contains(err.Error(), PluginType) {
		t.Errorf("error %v, want one that names the plugin", err)
	}
	if err := fwkplugin.ValidatePluginStability(h, true); err != nil {
		t.Error(err)
	}
}

func TestConsumes(t *testing.T) {
	for name, test := range map[string]struct {
		parameters string
		want       []string
	}{
		"default producer": {threshold, []string{"PrefixCacheMatchInfoDataKey/" + DefaultProducer}},
		"named producer":   {`{"prefixMatchInfoProducerName":"mine",` + threshold[1:], []string{"PrefixCacheMatchInfoDataKey/mine"}},
		"no thresholds":    {`{"pool":"q","loadPolicy":"disable"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			for key := range newFixture(t, test.parameters).Consumes().Required {
				keys = append(keys, key.String())
			}
			if diff := cmp.Diff(test.want, keys); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRegisterDependencies asks for a source of endpoint events, made if the
// configuration has none.
func TestRegisterDependencies(t *testing.T) {
	f := newFixture(t, threshold)
	var asked registrar
	if err := f.RegisterDependencies(&asked); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0].SourceType != "endpoint-notification-source" || asked[0].Extractor != fwkplugin.Plugin(f.Plugin) || asked[0].DefaultSource == nil {
		t.Errorf("asked for %+v", asked)
	}
}

type registrar []datalayer.PendingRegistration

func (r *registrar) Register(p datalayer.PendingRegistration) error {
	*r = append(*r, p)
	return nil
}

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
	f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", nil, little)))
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
	streamed := &requestcontrol.Response{Headers: stream}
	ended := &requestcontrol.Response{Headers: stream, EndOfStream: true}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			name := string(rune('a' + worker%2))
			for range 200 {
				request := completion(t, true)
				metrics := &datalayer.Metrics{WaitingQueueSize: worker, UpdateTime: f.clock}
				f.PreRequest(context.Background(), request, chosen(engine(name, metrics, little)))
				f.Extract(context.Background(), datalayer.EndpointEvent{Type: datalayer.EventType(worker % 2), Endpoint: modelServer(name)})
				f.ResponseHeader(context.Background(), request, streamed, nil)
				f.ResponseBody(context.Background(), request, streamed, nil)
				f.sweep(f.clock)
				f.ResponseBody(context.Background(), request, ended, nil)
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
