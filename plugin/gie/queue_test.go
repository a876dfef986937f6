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

	"github.com/kvtuner/kvtuner/plugin"
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
	const typed = "# TYPE vllm:num_requests_waiting gauge\n"
	for _, test := range []struct {
		name, signal, text string
		want               float64
		absent             float64
	}{
		{"one engine", "", typed + `vllm:num_requests_waiting{engine="0"} 12`, 12, 0},
		{"engines of one endpoint", "", typed + "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4", 7, 0},
		{"untyped", "", `vllm:num_requests_waiting 5`, 5, 0},
		{"another signal", "m", "vllm:num_requests_waiting 5\nm 6", 6, 0},
		{"by reason", "vllm:num_requests_waiting_by_reason",
			"vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 2\nvllm:num_requests_waiting_by_reason{reason=\"deferred\"} 40", 2, 0},
		{"missing", "", `vllm:num_requests_running 5`, 0, 1},
		{"only deferred", "vllm:num_requests_waiting_by_reason", `vllm:num_requests_waiting_by_reason{reason="deferred"} 40`, 0, 1},
		{"not a number", "", `vllm:num_requests_waiting NaN`, 0, 1},
		{"infinite", "", `vllm:num_requests_waiting +Inf`, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			parameters := threshold
			if test.signal != "" {
				parameters = `{"waitingSignal":"` + test.signal + `",` + threshold[1:]
			}
			f := newFixture(t, parameters)
			if err := f.Extract(context.Background(), scrape(t, test.text+"\n"), modelServer("a")); err != nil {
				t.Fatal(err)
			}
			if got := f.counter(ewma, "endpoint", "llm/a"); got != test.want {
				t.Errorf("average %g, want %g", got, test.want)
			}
			if got := f.fault(faultQueueAbsent); got != test.absent {
				t.Errorf("absent %g times, want %g", got, test.absent)
			}
		})
	}
	f := newFixture(t, threshold)
	if err := f.Extract(context.Background(), "text", modelServer("a")); err == nil {
		t.Error("took data that is no scrape")
	}
	if err := f.Extract(context.Background(), scrape(t, ""), nil); err != nil {
		t.Error(err)
	}
}

// TestGateOpensWhenTheMetricVanishes: the engine's last word was a long queue.
func TestGateOpensWhenTheMetricVanishes(t *testing.T) {
	f := newFixture(t, threshold)
	long := scrape(t, "vllm:num_requests_waiting 40\n")
	for range 20 {
		f.clock = f.clock.Add(50 * time.Millisecond)
		f.Extract(context.Background(), long, modelServer("a"))
	}
	decide := func() { f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", nil, external))) }
	decide()
	if f.decisions(plugin.ReasonQueueGate) != 1 {
		t.Fatal("the gate is not closed")
	}
	for range 20 {
		f.clock = f.clock.Add(50 * time.Millisecond)
		f.Extract(context.Background(), scrape(t, "vllm:num_requests_running 9\n"), modelServer("a"))
	}
	decide()
	if f.decisions(plugin.ReasonReusable) != 1 {
		t.Error("the gate is still closed by a queue that nobody measures")
	}
}

// TestObserveFromRequests: without the scrape, requests bring the queue.
func TestObserveFromRequests(t *testing.T) {
	f := newFixture(t, threshold)
	send := func(waiting int, at time.Time) {
		metrics := &datalayer.Metrics{WaitingQueueSize: waiting, UpdateTime: at}
		f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", metrics, little)))
	}
	send(40, time.Time{})
	if got := f.counter(ewma); got != 0 {
		t.Errorf("average %g before the first scrape", got)
	}
	send(40, f.clock)
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g, want 40: a request below the minimum feeds the gate, too", got)
	}
	f.Extract(context.Background(), scrape(t, "vllm:num_requests_waiting 7\n"), modelServer("b"))
	f.clock = f.clock.Add(time.Second)
	send(0, f.clock)
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g: fed twice", got)
	}
}

func TestStuck(t *testing.T) {
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name             string
		waiting, running func(i int) int
		step             time.Duration
		want             bool
	}{
		{"vanished", always(5), count, time.Second, true},
		{"empty", always(0), count, time.Second, false},
		{"moves", count, count, time.Second, false},
		{"moves now and then", func(i int) int { return 3 + i/8 }, count, time.Second, false},
		{"all stand still", always(5), always(7), time.Second, false},
		{"not long enough", always(5), count, 10 * time.Millisecond, false},
		{"time stands still", always(5), count, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s stillness
			got := false
			for i := range 60 {
				got = s.stuck(test.waiting(i), test.running(i), start.Add(time.Duration(i)*test.step))
			}
			if got != test.want {
				t.Errorf("stuck %v, want %v", got, test.want)
			}
		})
	}
	t.Run("moves again", func(t *testing.T) {
		var s stillness
		for i := range 60 {
			s.stuck(5, i, start.Add(time.Duration(i)*time.Second))
		}
		if s.stuck(6, 60, start.Add(time.Hour)) {
			t.Error("stuck although it moved")
		}
	})
}

func always(n int) func(int) int { return func(int) int { return n } }
func count(i int) int            { return i + 1 }

// TestStuckIsNotFed: the gate opens again in the end.
func TestStuckIsNotFed(t *testing.T) {
	f := newFixture(t, threshold)
	for i := range 60 {
		f.clock = f.clock.Add(300 * time.Millisecond)
		metrics := &datalayer.Metrics{WaitingQueueSize: 40, RunningRequestsSize: i, UpdateTime: f.clock}
		f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", metrics, external)))
	}
	if f.decisions(plugin.ReasonQueueGate) == 0 || f.decisions(plugin.ReasonReusable) == 0 || f.fault(faultQueueStuck) == 0 {
		t.Errorf("gate %g, reusable %g, stuck %g: want some of each",
			f.decisions(plugin.ReasonQueueGate), f.decisions(plugin.ReasonReusable), f.fault(faultQueueStuck))
	}
}

func TestEndpointRemoval(t *testing.T) {
	f := newFixture(t, threshold)
	text := scrape(t, "vllm:num_requests_waiting 7\n")
	a, b := modelServer("a"), modelServer("b")
	event := func(kind datalayer.EventType, e datalayer.Endpoint) {
		if err := f.ExtractEndpoint(context.Background(), datalayer.EndpointEvent{Type: kind, Endpoint: e}); err != nil {
			t.Fatal(err)
		}
	}
	event(datalayer.EventDelete, nil)
	event(datalayer.EventAddOrUpdate, a)
	f.Extract(context.Background(), text, a)
	f.Extract(context.Background(), text, b)
	event(datalayer.EventDelete, a)
	f.Extract(context.Background(), text, a) // a scrape that was under way
	f.PreRequest(context.Background(), completion(t, false), chosen(engine("a", nil, little)))
	if got := f.counter(ewma); got != 7 {
		t.Errorf("averages sum to %g, want that of b alone", got)
	}
	event(datalayer.EventAddOrUpdate, a)
	f.Extract(context.Background(), text, a)
	if got := f.counter(ewma); got != 14 {
		t.Errorf("averages sum to %g, want both again", got)
	}
	f.sweep(f.clock.Add(maxIdle + time.Second))
	f.endpoints.all.Range(func(any, any) bool { t.Error("an idle endpoint was kept"); return false })
}
