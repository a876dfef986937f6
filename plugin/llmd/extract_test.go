package llmd

import (
	"context"
	"testing"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/source/metrics"
	dto "github.com/prometheus/client_model/go"
)

const ewma = "selective_kv_endpoint_waiting_ewma"

// TestEndpointRemoval: requests bring the queue of an endpoint, those below the
// minimum, too, unless it is gone.
func TestEndpointRemoval(t *testing.T) {
	f := newFixture(t, threshold)
	a := datalayer.NewEndpoint(engine("a", nil, nil).GetMetadata(), nil)
	for _, step := range []struct {
		kind datalayer.EventType
		of   datalayer.Endpoint
		want float64
	}{
		{datalayer.EventDelete, nil, 7},
		{datalayer.EventDelete, a, 0},
		{datalayer.EventAddOrUpdate, a, 7},
	} {
		if err := f.Extract(context.Background(), datalayer.EndpointEvent{Type: step.kind, Endpoint: step.of}); err != nil {
			t.Fatal(err)
		}
		f.clock = f.clock.Add(time.Millisecond)
		metrics := &datalayer.Metrics{WaitingQueueSize: 7, UpdateTime: f.clock}
		f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", metrics, little)))
		if got := f.counter(ewma); got != step.want {
			t.Errorf("after %v of %v: average %g, want %g", step.kind, step.of, got, step.want)
		}
	}
}

// TestScrapes: every scrape brings the queue, or says that it is missing.
func TestScrapes(t *testing.T) {
	f := newFixture(t, threshold)
	a := datalayer.NewEndpoint(engine("a", nil, nil).GetMetadata(), nil)
	waiting := 12.0
	for _, families := range []metrics.PrometheusMetricMap{
		{"vllm:num_requests_waiting": {Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &waiting}}}}},
		nil,
	} {
		for _, endpoint := range []datalayer.Endpoint{nil, a} {
			if err := (scrapes{f.Plugin}).Extract(context.Background(), datalayer.PollInput[metrics.PrometheusMetricMap]{Payload: families, Endpoint: endpoint}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := f.counter(ewma, "endpoint", "llm/a"); got != waiting {
		t.Errorf("average %g, want %g", got, waiting)
	}
	if got := f.fault("queue_metric_absent"); got != 1 {
		t.Errorf("absent %g times, want once", got)
	}
}
