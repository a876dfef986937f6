package gie

import (
	"context"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
)

const ewma = "selective_kv_endpoint_waiting_ewma"

func scrape(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func modelServer(name string) datalayer.Endpoint {
	return datalayer.NewEndpoint(engine(name, nil, nil).GetMetadata(), nil)
}

func TestExtract(t *testing.T) {
	f := newFixture(t, threshold)
	if err := f.Extract(context.Background(), scrape(t, "vllm:num_requests_waiting 12\n"), modelServer("a")); err != nil {
		t.Fatal(err)
	}
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 12 {
		t.Errorf("average %g, want 12", got)
	}
	if err := f.Extract(context.Background(), scrape(t, ""), modelServer("a")); err != nil || f.fault("queue_metric_absent") != 1 {
		t.Errorf("error %v, absent %g times, want once", err, f.fault("queue_metric_absent"))
	}
	if err := f.Extract(context.Background(), "text", modelServer("a")); err == nil {
		t.Error("took data that is no scrape")
	}
	if err := f.Extract(context.Background(), scrape(t, ""), nil); err != nil {
		t.Error(err)
	}
}

// TestQueueOfRequests: without the scrape, requests bring the queue, those below
// the minimum, too.
func TestQueueOfRequests(t *testing.T) {
	f := newFixture(t, threshold)
	metrics := &datalayer.Metrics{WaitingQueueSize: 40, UpdateTime: f.clock}
	f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", metrics, little)))
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g, want 40", got)
	}
}

func TestEndpointRemoval(t *testing.T) {
	f := newFixture(t, threshold)
	text := scrape(t, "vllm:num_requests_waiting 7\n")
	event := func(kind datalayer.EventType, e datalayer.Endpoint) {
		if err := f.ExtractEndpoint(context.Background(), datalayer.EndpointEvent{Type: kind, Endpoint: e}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		kind datalayer.EventType
		of   datalayer.Endpoint
		want float64
	}{
		{datalayer.EventDelete, nil, 7},
		{datalayer.EventDelete, modelServer("a"), 0},
		{datalayer.EventAddOrUpdate, modelServer("a"), 7},
	} {
		event(step.kind, step.of)
		f.clock = f.clock.Add(time.Millisecond)
		f.Extract(context.Background(), text, modelServer("a"))
		if got := f.counter(ewma); got != step.want {
			t.Errorf("after %v of %v: average %g, want %g", step.kind, step.of, got, step.want)
		}
	}
}
