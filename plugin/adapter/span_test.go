package adapter

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// The EPP's span of a request says what was decided for it.
func TestDecisionsAreOnTheSpan(t *testing.T) {
	for name, test := range map[string]struct {
		evidence plugin.Evidence
		want     map[string]string
	}{
		"recompute": {little, map[string]string{
			"selective_kv.action": "recompute", "selective_kv.reason": "below_minimum", "selective_kv.arm": "baseline",
			"selective_kv.revision": "0", "selective_kv.reusable_tokens": "64",
		}},
		"load": {external, map[string]string{
			"selective_kv.action": "load", "selective_kv.reason": "reusable", "selective_kv.arm": "baseline",
			"selective_kv.revision": "0", "selective_kv.reusable_tokens": "1280",
		}},
		"no evidence": {plugin.Evidence{}, map[string]string{
			"selective_kv.action": "load", "selective_kv.reason": "no_evidence", "selective_kv.arm": "baseline", "selective_kv.revision": "0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("epp").Start(t.Context(), "gateway.request_orchestration")
			newFixture(t, threshold).Decide(ctx, routed(true, test.evidence))
			span.End()
			got := map[string]string{}
			for _, a := range exporter.GetSpans()[0].Attributes {
				got[string(a.Key)] = a.Value.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A request whose trace nobody records costs nothing.
func TestNoSpanAllocatesNothing(t *testing.T) {
	sampledOut, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("epp").Start(t.Context(), "request")
	defer span.End()
	decision := plugin.Decision{Action: plugin.Recompute, Arm: store.ArmBaseline, Revision: 7, Evidence: true, ReusableTokens: 64}
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "sampled out": sampledOut} {
		if n := testing.AllocsPerRun(100, func() { describe(ctx, decision) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
