package llmd

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

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
// configuration has none, and for one of metrics, without which only the default
// signal is known.
func TestRegisterDependencies(t *testing.T) {
	for signal, missing := range map[string]datalayer.MissingPolicy{
		"vllm:num_requests_waiting":           datalayer.Warn,
		"vllm:num_requests_waiting_by_reason": datalayer.Fail,
	} {
		f := newFixture(t, `{"waitingSignal":"`+signal+`",`+threshold[1:])
		var asked registrar
		if err := f.RegisterDependencies(&asked); err != nil {
			t.Fatal(err)
		}
		if len(asked) != 2 {
			t.Fatalf("asked for %d sources", len(asked))
		}
		if events := asked[0]; events.SourceType != "endpoint-notification-source" || events.Extractor != fwkplugin.Plugin(f.Plugin) || events.DefaultSource == nil {
			t.Errorf("asked for %+v", events)
		}
		if metrics := asked[1]; metrics.SourceType != "metrics-data-source" || metrics.IfMissing != missing {
			t.Errorf("%s: asked for %+v", signal, metrics)
		}
	}
}

type registrar []datalayer.PendingRegistration

func (r *registrar) Register(p datalayer.PendingRegistration) error {
	*r = append(*r, p)
	return nil
}
