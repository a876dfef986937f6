//go:build soak

package adapter

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

var soakFor = flag.Duration("soak", 30*time.Second, "how long TestSoak runs")

const (
	soakRounds    = 6
	soakEndpoints = 10_000
	soakWorkers   = 8
	// soakHaste is how much faster than the wall clock the adapter's runs, so that
	// trials, costs, samples and requests expire within a round.
	soakHaste = 120
	// soakPace is the time between two documents.
	soakPace = 10 * time.Millisecond
)

// soak is an adapter under load, and who works on it.
type soak struct {
	*Adapter
	t        *testing.T
	began    time.Time
	registry *prometheus.Registry
	document *store.Memory
	revision int64
	decided  atomic.Int64
	trials   atomic.Int64 // decisions on a candidate
	// lost are requests whose end was never reported.
	lost atomic.Int64
}

// footprint is what a leak would make grow.
type footprint struct {
	goroutines, series int
	heap               uint64
}

// TestSoak runs everything an Endpoint Picker does with the plugin at once, in
// rounds. After each all engines are removed and what is over is forgotten: then
// as much must be left as after the first.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	var first footprint
	for round := range soakRounds {
		s.round(*soakFor/soakRounds, uint64(round))
		got := s.settle()
		t.Logf("round %d: %d decisions (%d on a candidate), %d requests lost, revision %d, %+v",
			round, s.decided.Load(), s.trials.Load(), s.lost.Load(), s.revision, got)
		if round == 0 {
			first = got
			continue
		}
		if got.goroutines > first.goroutines || got.series != first.series || got.heap > 2*first.heap {
			t.Errorf("round %d leaves %+v, the first left %+v", round, got, first)
		}
	}
	if s.trials.Load() == 0 || s.trials.Load() == s.decided.Load() || s.lost.Load() == 0 {
		t.Errorf("%d of %d decisions on a candidate, %d requests lost: the soak does not reach what it is for", s.trials.Load(), s.decided.Load(), s.lost.Load())
	}
	if got := s.sum("selective_kv_decisions_total"); got != float64(s.decided.Load()) {
		t.Errorf("%v decisions counted, want %d", got, s.decided.Load())
	}
	if started, finished := s.sum("selective_kv_cost_started_total"), s.sum("selective_kv_cost_finished_total"); finished == 0 || finished > started {
		t.Errorf("%v requests finished of %v", finished, started)
	}
	if got := s.sum("selective_kv_documents_refused_total"); got != 0 {
		t.Errorf("%v documents refused", got)
	}
}

func newSoak(t *testing.T) *soak {
	config, err := ParseConfig([]byte(`{"pool":"soak","loadPolicy":"adaptive","minExternalReusableTokens":512,"maxWaitingRequests":8,
		"gate":{"maxSampleAge":"1m"},"tuning":{"configMap":{"name":"soak"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, began: time.Now(), registry: prometheus.NewPedanticRegistry(), document: store.NewMemory("soak")}
	s.publish()
	s.Adapter, err = New(t.Context(), Options{
		Config: config, Now: s.clock, Registerer: s.registry, Logger: slog.New(slog.DiscardHandler),
		OpenConfigMap: func(plugin.ConfigMap, string, *slog.Logger) (Watcher, error) { return s.document, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *soak) clock() time.Time { return s.began.Add(soakHaste * time.Since(s.began)) }

// round works on the adapter for a while.
func (s *soak) round(length time.Duration, seed uint64) {
	ctx, cancel := context.WithTimeout(s.t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for i := range uint64(soakWorkers) {
		all.Go(func() { s.serve(ctx, rand.New(rand.NewPCG(seed, i))) })
	}
	all.Go(func() { s.churn(ctx, rand.New(rand.NewPCG(seed, soakWorkers))) })
	all.Go(func() { s.publishAll(ctx) })
	all.Go(func() { every(ctx, time.Second, func() { s.gather() }) })
	all.Go(func() { every(ctx, time.Second, func() { s.sweep(s.clock()) }) })
	all.Wait()
}

func every(ctx context.Context, interval time.Duration, do func()) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			do()
		}
	}
}

// publishAll writes a hundred documents a second. What the machine has no time for
// when it is due is made up for.
func (s *soak) publishAll(ctx context.Context) {
	began, written := time.Now(), 0
	every(ctx, soakPace, func() {
		for ; time.Duration(written)*soakPace < time.Since(began); written++ {
			s.publish()
		}
	})
}

// publish writes the next document: other parameters, costs fitted anew, and now
// and then a candidate that expires before the next one comes.
func (s *soak) publish() {
	s.revision++
	now, n := s.clock(), int(s.revision)
	doc := &store.Document{
		APIVersion: store.APIVersion, Pool: "soak", Revision: s.revision, UpdatedAt: now,
		Baseline: store.Params{MinExternalReusableTokens: store.Tokens(64 << (n % 6)), MaxWaitingRequests: n % 16, LoadPolicy: store.Adaptive},
	}
	if n%3 != 0 {
		doc.Costs = &store.Costs{
			FittedAt: now, ExpiresAt: now.Add(time.Second), BaseSeconds: 0.1, SecondsPerToken: 1e-4 * float64(1+n%4), Crowding: 0.5,
			Restores: []store.RestoreCost{{Reusable: 512, Seconds: 0.1, Requests: 9}, {Reusable: 2048, Seconds: 0.3, Requests: 9}},
		}
	}
	if n%2 == 0 {
		doc.Trial = &store.Trial{
			ID: strconv.Itoa(n), Candidate: store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 4},
			Assignment: store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: uint64(n)},
			StartedAt:  now, ExpiresAt: now.Add(600 * time.Millisecond),
		}
	}
	if err := s.document.Swap(context.Background(), doc); err != nil {
		s.t.Error(err)
	}
}

// churn has engines come, report and go.
func (s *soak) churn(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		id := engineOf(random)
		switch random.IntN(8) {
		case 0:
			s.Added(id)
		case 1:
			s.Removed(id)
		default:
			s.Scraped(id, map[string]*dto.MetricFamily{
				plugin.DefaultWaitingSignal: gauge(float64(random.IntN(20) - 1)),
				runningMetric:               gauge(float64(random.IntN(64))),
			})
		}
	}
}

func gauge(v float64) *dto.MetricFamily {
	return &dto.MetricFamily{Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}}}}
}

func engineOf(random *rand.Rand) EndpointID {
	return EndpointID{"llm", fmt.Sprintf("vllm-%05d", random.IntN(soakEndpoints))}
}

// serve has requests decided and answered.
func (s *soak) serve(ctx context.Context, random *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		r := &Request{
			Key: new(int), ID: strconv.FormatUint(random.Uint64(), 16), Endpoint: engineOf(random), Streamed: random.IntN(4) > 0,
			Body:     bodies[random.IntN(len(bodies))](),
			Send:     func(map[string]any) {},
			Evidence: evidence(map[string]int{"gpu": random.IntN(8), "cpu": random.IntN(80)}),
		}
		r.Evidence.PromptTokens = 8192
		s.Decide(ctx, r)
		s.decided.Add(1)
		if d := s.inFlight.get(r.Key); d != nil && d.decision.Arm == store.ArmCandidate {
			s.trials.Add(1)
		}
		s.answer(r, random)
		if i%16 == 0 {
			runtime.Gosched()
		}
	}
}

var bodies = []func() map[string]any{
	func() map[string]any { return map[string]any{"prompt": "p"} },
	func() map[string]any {
		return map[string]any{"kv_transfer_params": map[string]any{"max_load_tokens": json.Number("7")}}
	},
	func() map[string]any {
		return map[string]any{"kv_transfer_params": map[string]any{"kv_load_tiers": []any{"cpu"}}}
	},
	func() map[string]any { return map[string]any{"kv_transfer_params": "text"} },
	func() map[string]any { return nil },
}

// answer ends a request as requests end: well, in error, broken, or never.
func (s *soak) answer(r *Request, random *rand.Rand) {
	switch random.IntN(64) {
	case 0:
		s.lost.Add(1)
		return
	case 1:
		s.ResponseHeader(r.Key, map[string]string{":status": "503"}, r.Body)
	case 2: // broken before it began
	default:
		s.ResponseHeader(r.Key, map[string]string{":status": "200"}, r.Body)
		s.ResponseBody(r.Key, Piece{PromptTokens: 8192, CachedTokens: random.IntN(8192)})
	}
	s.ResponseBody(r.Key, Piece{End: true, PromptTokens: 8192, CompletionTokens: random.IntN(512), CachedTokens: Unknown})
}

// settle removes all engines, forgets what is over, and looks at what is left.
func (s *soak) settle() footprint {
	for i := range soakEndpoints {
		s.Removed(EndpointID{"llm", fmt.Sprintf("vllm-%05d", i)})
	}
	s.sweep(s.clock().Add(2 * maxDuration))
	if n := s.inFlight.n.Load(); n != 0 {
		s.t.Errorf("%d requests are remembered after they expired", n)
	}
	if got := s.sum("selective_kv_endpoints"); got != 0 {
		s.t.Errorf("%v engines are followed after all were removed", got)
	}
	series := s.gather()
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool holds survives one
	runtime.ReadMemStats(&m)
	return footprint{goroutines: runtime.NumGoroutine(), series: series, heap: m.HeapAlloc}
}

// gather scrapes the metrics and counts the series of engines; all others are of
// closed sets of labels.
func (s *soak) gather() (series int) {
	for _, family := range s.families() {
		for _, m := range family.GetMetric() {
			if _, ofEngine := label(m, "endpoint"); ofEngine {
				series++
			}
		}
	}
	return series
}

func (s *soak) families() []*dto.MetricFamily {
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Error(err)
	}
	return families
}

func (s *soak) sum(name string) (sum float64) {
	for _, family := range s.families() {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.Counter.GetValue() + m.Gauge.GetValue()
		}
	}
	return sum
}
