package adapter

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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

func TestScraped(t *testing.T) {
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
		{"no load of this world", "", `vllm:num_requests_waiting 1e300`, 0, 1},
		{"a counter", "", "# TYPE vllm:num_requests_waiting counter\nvllm:num_requests_waiting 9", 0, 1},
		{"a histogram", "", "# TYPE vllm:num_requests_waiting histogram\nvllm:num_requests_waiting_bucket{le=\"+Inf\"} 9\nvllm:num_requests_waiting_sum 1\nvllm:num_requests_waiting_count 9", 0, 1},
		{"infinite", "", `vllm:num_requests_waiting +Inf`, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			parameters := threshold
			if test.signal != "" {
				parameters = `{"waitingSignal":"` + test.signal + `",` + threshold[1:]
			}
			f := newFixture(t, parameters)
			f.Scraped(a, scrape(t, test.text+"\n"))
			if got := f.counter(ewma, "endpoint", "llm/a"); got != test.want {
				t.Errorf("average %g, want %g", got, test.want)
			}
			if got := f.faults(FaultQueueAbsent); got != test.absent {
				t.Errorf("absent %g times, want %g", got, test.absent)
			}
		})
	}
}

// TestGateOpensWhenTheMetricVanishes: the engine's last word was a long queue.
func TestGateOpensWhenTheMetricVanishes(t *testing.T) {
	f := newFixture(t, threshold)
	long := scrape(t, "vllm:num_requests_waiting 40\n")
	for range 20 {
		f.clock = f.clock.Add(50 * time.Millisecond)
		f.Scraped(a, long)
	}
	f.Decide(t.Context(), routed(false, external))
	if f.decisions(plugin.ReasonQueueGate) != 1 {
		t.Fatal("the gate is not closed")
	}
	for range 20 {
		f.clock = f.clock.Add(50 * time.Millisecond)
		f.Scraped(a, scrape(t, "vllm:num_requests_running 9\n"))
	}
	f.Decide(t.Context(), routed(false, external))
	if f.decisions(plugin.ReasonReusable) != 1 {
		t.Error("the gate is still closed by a queue that nobody measures")
	}
}

// TestRouted: without the scrape, requests bring the queue.
func TestRouted(t *testing.T) {
	f := newFixture(t, threshold)
	f.Routed(a, Load{Waiting: 40})
	if got := f.counter(ewma); got != 0 {
		t.Errorf("average %g before the first scrape", got)
	}
	f.Routed(a, Load{Waiting: 40, At: f.clock})
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g, want 40", got)
	}
	f.Decide(t.Context(), routed(false, external))
	if f.decisions(plugin.ReasonQueueGate) != 1 {
		t.Error("a long queue does not close the gate")
	}
	f.Scraped(b, scrape(t, "vllm:num_requests_waiting 7\n"))
	f.clock = f.clock.Add(time.Second)
	f.Routed(a, Load{At: f.clock})
	if got := f.counter(ewma, "endpoint", "llm/a"); got != 40 {
		t.Errorf("average %g: fed twice", got)
	}
	f.Decide(t.Context(), routed(false, external))
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
				got = s.stuck(Load{test.waiting(i), test.running(i), start.Add(time.Duration(i) * test.step)})
			}
			if got != test.want {
				t.Errorf("stuck %v, want %v", got, test.want)
			}
		})
	}
	t.Run("moves again", func(t *testing.T) {
		var s stillness
		for i := range 60 {
			s.stuck(Load{5, i, start.Add(time.Duration(i) * time.Second)})
		}
		if s.stuck(Load{6, 60, start.Add(time.Hour)}) {
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
		f.Routed(a, Load{Waiting: 40, Running: i, At: f.clock})
		f.Decide(t.Context(), routed(false, external))
	}
	if f.decisions(plugin.ReasonQueueGate) == 0 || f.decisions(plugin.ReasonReusable) == 0 || f.faults(FaultQueueStuck) == 0 {
		t.Errorf("gate %g, reusable %g, stuck %g: want some of each",
			f.decisions(plugin.ReasonQueueGate), f.decisions(plugin.ReasonReusable), f.faults(FaultQueueStuck))
	}
}

func TestRemoval(t *testing.T) {
	f := newFixture(t, threshold)
	text := scrape(t, "vllm:num_requests_waiting 7\n")
	f.Added(a)
	f.Scraped(a, text)
	f.Scraped(b, text)
	f.Removed(a)
	f.Scraped(a, text) // a scrape that was under way
	f.Decide(t.Context(), routed(false, little))
	if got := f.counter(ewma); got != 7 {
		t.Errorf("averages sum to %g, want that of b alone", got)
	}
	f.Added(a)
	f.Scraped(a, text)
	if got := f.counter(ewma); got != 14 {
		t.Errorf("averages sum to %g, want both again", got)
	}
	f.sweep(f.clock.Add(maxIdle + time.Second))
	f.endpoints.all.Range(func(any, any) bool { t.Error("an idle endpoint was kept"); return false })
}

// TestRemovalDuringScrapes: no scrape brings an endpoint back, however close.
func TestRemovalDuringScrapes(t *testing.T) {
	f := newFixture(t, threshold)
	text := scrape(t, "vllm:num_requests_waiting 7\n")
	for i := range 2000 {
		id := EndpointID{"llm", strconv.Itoa(i)}
		f.Added(id)
		var both sync.WaitGroup
		both.Go(func() { f.Scraped(id, text) })
		both.Go(func() { f.Removed(id) })
		both.Wait()
	}
	if got := f.counter("selective_kv_endpoints"); got != 0 {
		t.Errorf("%g endpoints that are gone are followed", got)
	}
}

// FuzzScraped reads metrics pages: whatever they say, the queue that the policy
// goes by is a number of requests, and an engine has its own series and no other.
func FuzzScraped(f *testing.F) {
	for _, seed := range []string{
		"vllm:num_requests_waiting 3\nvllm:num_requests_running 4\n",
		"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\"} NaN\nvllm:num_requests_waiting{engine=\"1\"} -Inf\n",
		"vllm:num_requests_waiting -1\nvllm:num_requests_running 1e300\n",
		"# TYPE vllm:num_requests_waiting histogram\nvllm:num_requests_waiting_bucket{le=\"+Inf\"} 4\nvllm:num_requests_waiting_count 4\n",
		"vllm:num_requests_waiting{reason=\"deferred\",pod=\"\\n\x1b[2J\"} 1073741824\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return
		}
		x := newFixture(t, threshold)
		x.Scraped(a, families)
		x.Decide(t.Context(), routed(true, external))
		if got := x.counter(ewma, "endpoint", "llm/a"); !(got >= 0 && got <= maxRequests) {
			t.Errorf("%v requests waiting", got)
		}
		if got, all := x.counter("selective_kv_endpoints"), x.counter("selective_kv_decisions_total"); got > 1 || all != 1 {
			t.Errorf("%v engines, %v decisions", got, all)
		}
	})
}
