//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
)

// receiver takes spans by OTLP, as a collector does.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu sync.Mutex
	// decisions are the plugin's attributes of each span that has any.
	decisions []map[string]string
	// on are the names of those spans.
	on []string
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{address: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return r
}

// Export implements the service.
func (r *receiver) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range in.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if a := ours(span.GetAttributes()); len(a) > 0 {
					r.decisions, r.on = append(r.decisions, a), append(r.on, span.GetName())
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ours are the attributes that the plugin sets.
func ours(all []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		if name, found := strings.CutPrefix(a.GetKey(), "selective_kv."); found {
			out[name] = a.GetValue().GetStringValue()
			if n, ok := a.GetValue().GetValue().(*common.AnyValue_IntValue); ok {
				out[name] = fmt.Sprint(n.IntValue)
			}
		}
	}
	return out
}

// has tells that the EPP's span of a request came with these attributes.
func (r *receiver) has(want map[string]string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, got := range r.decisions {
		if r.on[i] == "gateway.request_orchestration" && maps.Equal(got, want) {
			return true
		}
	}
	return false
}

// testSpans: what was decided for a request is on the span that the EPP sends of it.
func (f *fleet) testSpans(t *testing.T) {
	r := startReceiver(t)
	defer func() {
		if t.Failed() {
			t.Logf("spans %v have %v", r.on, r.decisions)
		}
	}()
	e := f.another(t, []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + r.address,
		"OTEL_TRACES_SAMPLER_ARG=1", "OTEL_BSP_SCHEDULE_DELAY=100",
	}, "--tracing=true")
	f.ready(e)
	revision := f.write(100, 8)
	e.shows(float64(revision), 10*time.Second, "selective_kv_revision")
	for _, test := range []struct{ prompt, action, reason, tokens string }{
		{hot, "load", "reusable", fmt.Sprint((cpuBlocks - gpuBlocks) * blockSize)},
		{cold, "recompute", "below_minimum", "0"},
	} {
		want := map[string]string{"action": test.action, "reason": test.reason, "arm": "baseline", "revision": fmt.Sprint(revision), "reusable_tokens": test.tokens}
		f.send(e, completions, completion(test.prompt))
		eventually(t, fmt.Sprintf("a span with %v", want), 30*time.Second, func() bool { return r.has(want) })
	}
}
