package llmd

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/attribute/prefix"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/requesthandling/parsers/openai"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// fixture is a plugin on a clock that stands until it is moved.
type fixture struct {
	*Plugin
	t        testing.TB
	clock    time.Time
	now      func() time.Time
	registry *prometheus.Registry
}

const threshold = `{"pool":"qwen","loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8}`

func newFixture(t testing.TB, parameters string) *fixture {
	t.Helper()
	config, err := adapter.ParseConfig([]byte(parameters))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f := &fixture{t: t, clock: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), registry: prometheus.NewRegistry()}
	f.now = func() time.Time { return f.clock }
	f.Plugin, err = New(ctx, Options{
		Config: config, Now: func() time.Time { return f.now() }, Registerer: f.registry,
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
		if label(m, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

func (f *fixture) fault(reason string) float64 {
	return f.counter("selective_kv_adapter_faults_total", "reason", reason)
}

func (f *fixture) decisions(reason plugin.Reason) float64 {
	return f.counter("selective_kv_decisions_total", "reason", reason.String())
}

// engine is an endpoint with metrics, and evidence for 64-token blocks; nil
// tiers is none.
func engine(name string, metrics *datalayer.Metrics, tiers map[string]int) scheduling.Endpoint {
	e := scheduling.NewEndpoint(&datalayer.EndpointMetadata{
		ID: types.NamespacedName{Namespace: "llm", Name: name}, Address: "10.0.0.1", Port: "8000",
	}, metrics, nil)
	if tiers != nil {
		cached := 0
		for _, blocks := range tiers {
			cached = max(cached, blocks)
		}
		put(e, DefaultProducer, cachedPrefix(cached, tiers))
	}
	return e
}

// cachedPrefix is what a producer says of blocks of 64 tokens; its weighted score
// is none of our business.
func cachedPrefix(blocks int, tiers map[string]int) *prefix.PrefixCacheMatchInfo {
	return prefix.NewPrefixCacheMatchInfo(1, 1000, 64).WithCachedBlockCount(blocks).WithCachedBlocksByTier(tiers)
}

// put is what a producer does, in any version of the framework.
func put(endpoint scheduling.Endpoint, producer string, value datalayer.Cloneable) {
	key := prefix.PrefixCacheMatchInfoDataKey.WithNonEmptyProducerName(producer)
	switch e := any(endpoint).(type) {
	case interface {
		Put(fwkplugin.DataKey, datalayer.Cloneable)
	}:
		e.Put(key, value)
	case interface {
		Put(string, datalayer.Cloneable)
	}:
		e.Put(key.String(), value)
	}
}

// external has 1280 tokens outside the GPU, little has 64.
var (
	external = map[string]int{"gpu": 4, "cpu": 24}
	little   = map[string]int{"gpu": 4, "cpu": 5}
)

func chosen(endpoint scheduling.Endpoint) *scheduling.SchedulingResult {
	return profiles("default", map[string]scheduling.Endpoint{"default": endpoint})
}

func profiles(primary string, endpoints map[string]scheduling.Endpoint) *scheduling.SchedulingResult {
	r := &scheduling.SchedulingResult{PrimaryProfileName: primary, ProfileResults: map[string]*scheduling.ProfileRunResult{}}
	for name, e := range endpoints {
		r.ProfileResults[name] = &scheduling.ProfileRunResult{TargetEndpoints: []scheduling.Endpoint{e}}
	}
	return r
}

// parsed is a request as the EPP's own parser makes it.
func parsed(t testing.TB, path, body string) *scheduling.InferenceRequest {
	t.Helper()
	headers := map[string]string{":path": path}
	result, err := openai.NewOpenAIParser().ParseRequest(context.Background(), []byte(body), headers)
	if err != nil {
		t.Fatal(err)
	}
	return &scheduling.InferenceRequest{RequestID: "7d4c0b6e-9f1a-4c58-b7d2-000000000001", Body: result.Body, Headers: headers}
}

func completion(t testing.TB, stream bool) *scheduling.InferenceRequest {
	t.Helper()
	if stream {
		return parsed(t, "/v1/completions", `{"model":"m","prompt":"p","stream":true}`)
	}
	return parsed(t, "/v1/completions", `{"model":"m","prompt":"p"}`)
}

// touched says whether the framework knows that the body has changed. v0.10.0
// assumes so of every body.
func touched(request *scheduling.InferenceRequest) bool {
	mutated := reflect.ValueOf(request.Body).Elem().FieldByName("Mutated")
	return !mutated.IsValid() || mutated.Bool()
}

// sent is the body that the EPP sends: it marshals the payload if it knows of a
// change, and sends what came otherwise.
func sent(t testing.TB, request *scheduling.InferenceRequest, came string) string {
	t.Helper()
	if !touched(request) {
		return came
	}
	raw, err := json.Marshal(request.Body.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
