package gie

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"

	"github.com/kvtuner/kvtuner/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handle(ctx context.Context) fwkplugin.Handle {
	return fwkplugin.NewEppHandle(ctx, func() []types.NamespacedName { return nil })
}

// TestFactory makes two instances on the EPP's own registry: an EPP restarted
// in place, or two plugins of one pool, must not fail on the second.
func TestFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, name := range []string{"one", "two"} {
		made, err := Factory(name, json.RawMessage(threshold), handle(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if got := made.TypedName(); got != (fwkplugin.TypedName{Type: PluginType, Name: name}) {
			t.Errorf("named %v", got)
		}
	}
	families, err := ctrlmetrics.Registry.Gather()
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

func TestFactoryRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		parameters string
		want       []string
	}{
		"no parameters": {"", []string{"plugin p", "parameters"}},
		"bad value":     {`{"pool":"q","loadPolicy":"x"}`, []string{"plugin p", "loadPolicy"}},
		"no pool":       {`{"loadPolicy":"disable"}`, []string{"plugin p", "pool"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Factory("p", json.RawMessage(test.parameters), handle(context.Background()))
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
