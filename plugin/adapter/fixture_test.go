package adapter

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an adapter on a clock that stands until it is moved.
type fixture struct {
	*Adapter
	t        testing.TB
	clock    time.Time
	registry *prometheus.Registry
	inForce  inForce
}

const threshold = `{"pool":"qwen","loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8}`

func newFixture(t testing.TB, parameters string) *fixture {
	t.Helper()
	config, err := ParseConfig([]byte(parameters))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f := &fixture{t: t, clock: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), registry: prometheus.NewRegistry(), inForce: make(inForce, 8)}
	f.Adapter, err = New(ctx, Options{
		Config: config, Now: func() time.Time { return f.clock }, Registerer: f.registry, Logger: slog.New(f.inForce),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// counter reads one series; absent is zero.
func (f *fixture) counter(name string, labels ...string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range family.GetMetric() {
			if matches(m, labels) {
				sum += m.Counter.GetValue() + float64(m.Histogram.GetSampleCount()) + m.Gauge.GetValue()
			}
		}
		return sum
	}
	return 0
}

// matches takes pairs of name and value.
func matches(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if got, _ := label(m, labels[i]); got != labels[i+1] {
			return false
		}
	}
	return true
}

func (f *fixture) faults(which Fault) float64 {
	return f.counter("selective_kv_adapter_faults_total", "reason", faultNames[which])
}

func (f *fixture) decisions(reason plugin.Reason) float64 {
	return f.counter("selective_kv_decisions_total", "reason", reason.String())
}

var a, b = EndpointID{"llm", "a"}, EndpointID{"llm", "b"}

// external has 1280 tokens outside the GPU, little has 64.
var (
	external = evidence(map[string]int{"gpu": 4, "cpu": 24})
	little   = evidence(map[string]int{"gpu": 4, "cpu": 5})
)

func evidence(tiers map[string]int) plugin.Evidence {
	match := plugin.PrefixMatch{ByTier: tiers}
	for _, blocks := range tiers {
		match.CachedBlocks = max(match.CachedBlocks, blocks)
	}
	return plugin.Evidence{Prompts: []plugin.PrefixMatch{match}, BlockSize: 64}
}

// routed is a request to endpoint a, of a key of its own.
func routed(stream bool, e plugin.Evidence) *Request {
	r := &Request{
		Key: new(int), ID: "7d4c0b6e-9f1a-4c58-b7d2-000000000001", Endpoint: a, Streamed: stream,
		Body: map[string]any{"model": "m", "prompt": "p"}, Evidence: e,
	}
	r.Send = func(body map[string]any) { r.Body = body }
	return r
}
