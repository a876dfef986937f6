package llmd

import (
	"context"
	"testing"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"

	"github.com/kvtuner/kvtuner/plugin"
)

const ewma = "selective_kv_endpoint_waiting_ewma"

func modelServer(name string) datalayer.Endpoint {
	return datalayer.NewEndpoint(engine(name, nil, nil).GetMetadata(), nil)
}

// send is one request to engine "a", whose queue was measured at a time.
func (f *fixture) send(waiting, running int, at time.Time, tiers map[string]int) {
	metrics := &datalayer.Metrics{WaitingQueueSize: waiting, RunningRequestsSize: running, UpdateTime: at}
	f.PreRequest(context.Background(), completion(f.t, false), chosen(engine("a", metrics, tiers)))
}

func TestObserve(t *testing.T) {
	f := newFixture(t, threshold)
	f.send(40, 0, time.Time{}, little)
	if got := f.counter(ewma); got != 0 {
		t.Errorf("average %g before the first scrape", got)
	}
	f.send(40, 0, f.clock, little)
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g, want 40: a request below the minimum feeds the gate, too", got)
	}
	f.send(40, 0, f.clock, external)
	if f.decisions(plugin.ReasonQueueGate) != 1 {
		t.Error("a long queue does not close the gate")
	}
	f.clock = f.clock.Add(time.Minute)
	f.send(40, 0, f.clock.Add(-time.Minute), external)
	if f.decisions(plugin.ReasonReusable) != 1 {
		t.Error("the gate is still closed by a queue measured long ago")
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
		f.send(40, i, f.clock, external)
	}
	if f.decisions(plugin.ReasonQueueGate) == 0 || f.decisions(plugin.ReasonReusable) == 0 || f.fault(faultQueueStuck) == 0 {
		t.Errorf("gate %g, reusable %g, stuck %g: want some of each",
			f.decisions(plugin.ReasonQueueGate), f.decisions(plugin.ReasonReusable), f.fault(faultQueueStuck))
	}
}

func TestEndpointRemoval(t *testing.T) {
	f := newFixture(t, threshold)
	event := func(kind datalayer.EventType, e datalayer.Endpoint) {
		if err := f.Extract(context.Background(), datalayer.EndpointEvent{Type: kind, Endpoint: e}); err != nil {
			t.Fatal(err)
		}
	}
	event(datalayer.EventDelete, nil)
	event(datalayer.EventAddOrUpdate, modelServer("a"))
	f.send(7, 0, f.clock, little)
	event(datalayer.EventDelete, modelServer("a"))
	f.send(7, 0, f.clock.Add(time.Millisecond), little) // a request that was under way
	if got := f.counter(ewma); got != 0 {
		t.Errorf("average %g of an endpoint that is gone", got)
	}
	event(datalayer.EventAddOrUpdate, modelServer("a"))
	f.send(7, 0, f.clock.Add(2*time.Millisecond), little)
	if got := f.counter(ewma); got != 7 {
		t.Errorf("average %g of an endpoint that is back, want 7", got)
	}
	f.sweep(f.clock.Add(maxIdle + time.Second))
	f.endpoints.all.Range(func(any, any) bool { t.Error("an idle endpoint was kept"); return false })
}
