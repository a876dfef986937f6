package kvevents

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// TestMain looks for leaks. The ZeroMQ library that plays the engine leaves one
// goroutine behind each PUB socket that it closes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"))
}

// testProducer ends, with all its goroutines, before the test does.
func testProducer(t testing.TB, parameters string, tokenizer Tokenizer) *Producer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := New(ctx, Options{Config: *testConfig(t, parameters), Tokenizer: tokenizer, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		p.Wait()
	})
	return p
}

func metadata(name, address string) *datalayer.EndpointMetadata {
	return &datalayer.EndpointMetadata{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: name}, PodName: name, Address: address, Port: "8000",
	}
}

func (p *Producer) event(t testing.TB, kind datalayer.EventType, name, address string) {
	t.Helper()
	e := datalayer.EndpointEvent{Type: kind, Endpoint: datalayer.NewEndpoint(metadata(name, address), nil)}
	if err := p.ExtractEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request past candidate endpoints and returns what it finds there.
func (p *Producer) ask(t testing.TB, body string, endpoints ...string) map[string]*evidence.PrefixTiers {
	t.Helper()
	var payload map[string]any
	if err := json.Unmarshal([]byte(body), &payload); err != nil {
		t.Fatal(err)
	}
	salt, _ := payload["cache_salt"].(string)
	r := &scheduling.LLMRequest{
		RequestId: "r", TargetModel: "model",
		Body: &scheduling.LLMRequestBody{Payload: scheduling.PayloadMap(payload), Completions: &scheduling.CompletionsRequest{CacheSalt: salt}},
	}
	candidates := make([]scheduling.Endpoint, len(endpoints))
	for i, name := range endpoints {
		candidates[i] = scheduling.NewEndpoint(metadata(name, "127.0.0.1"), nil, nil)
	}
	if err := p.PrepareRequestData(t.Context(), r, candidates); err != nil {
		t.Fatal(err)
	}
	found := map[string]*evidence.PrefixTiers{}
	for i, name := range endpoints {
		if v, ok := candidates[i].Get(evidence.PrefixTiersKey); ok {
			found[name] = v.(*evidence.PrefixTiers)
		}
	}
	return found
}

// pretend has an endpoint followed, connected and known, without an engine.
func (p *Producer) pretend(name string) *followed {
	f := &followed{follower: p.follower(name, "127.0.0.1", 0), stop: func() {}}
	f.connected.Store(true)
	p.followers.Store("default/"+name, f)
	return f
}

func bodyOf(tokens ...[]uint32) string {
	b, err := json.Marshal(map[string]any{"model": "model", "prompt": tokens})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestProducerFollowsAnEngine(t *testing.T) {
	port := freePorts(t)
	engine := newPublisher(t, "127.0.0.1", port)
	e, a := engine.engine, sequenceOf(0, 0, 6)
	engine.publish(e.store("GPU", a, 0, 2)) // nobody hears this one

	p := testProducer(t, fmt.Sprintf(`{"port": %d, "replayPort": %d, "topic": "kv@"}`, port, port+1), nil)
	p.event(t, datalayer.EventAddOrUpdate, "pod", "127.0.0.1")
	holds := func(all int, byTier map[string]int) func() bool {
		return func() bool {
			m, size, ok := p.Match(Prompt{Tokens: a}, "default/pod")
			return ok && size == testBlock && cmp.Equal(m, plugin.PrefixMatch{CachedBlocks: all, ByTier: byTier})
		}
	}
	eventually(t, "history replayed", holds(2, map[string]int{"gpu": 2}))

	engine.publish(e.place("CPU", a, 0, 1))
	eventually(t, "live event", holds(2, map[string]int{"gpu": 2, "cpu": 1}))

	engine.lose(e.store("GPU", a, 2, 4))
	engine.publish(e.place("CPU", a, 1, 4))
	eventually(t, "gap healed", holds(4, map[string]int{"gpu": 4, "cpu": 4}))
	if testutil.ToFloat64(p.metrics.lost) != 1 {
		t.Errorf("%v messages lost, want 1", testutil.ToFloat64(p.metrics.lost))
	}

	want := map[string]*evidence.PrefixTiers{"pod": {BlockSize: testBlock, PromptTokens: len(a) + 5, Prompts: []plugin.PrefixMatch{
		{CachedBlocks: 4, ByTier: map[string]int{"gpu": 4, "cpu": 4}}, {ByTier: map[string]int{}},
	}}}
	if diff := cmp.Diff(want, p.ask(t, bodyOf(a, []uint32{5, 5, 5, 5, 5}), "pod", "stranger")); diff != "" {
		t.Error(diff)
	}

	engine.restart()
	engine.publish(e.store("GPU", a, 0, 1))
	eventually(t, "restart noticed", holds(1, map[string]int{"gpu": 1}))

	engine.close()
	eventually(t, "evidence withheld while the engine is gone", func() bool { return len(p.ask(t, bodyOf(a), "pod")) == 0 })

	p.event(t, datalayer.EventDelete, "pod", "127.0.0.1")
	if n, _, _ := p.state(); n != 0 {
		t.Errorf("%d endpoints followed", n)
	}
}

func TestEndpointsMoveAndGo(t *testing.T) {
	port := freePorts(t)
	a := sequenceOf(0, 0, 6)
	for i := range 2 {
		engine := newPublisher(t, fmt.Sprintf("127.0.0.%d", i+1), port)
		engine.publish(engine.engine.store("GPU", a, 0, i+1))
	}
	// Rank 1 has its ports one above those configured.
	p := testProducer(t, fmt.Sprintf(`{"port": %d, "replayPort": %d}`, port-1, port), nil)
	holds := func(want int) func() bool {
		return func() bool {
			m, _, ok := p.Match(Prompt{Tokens: a}, "default/pod-rank-1")
			return ok && m.CachedBlocks == want
		}
	}
	p.event(t, datalayer.EventAddOrUpdate, "pod-rank-1", "127.0.0.1")
	eventually(t, "first address", holds(1))
	first := p.find("default/pod-rank-1")
	p.event(t, datalayer.EventAddOrUpdate, "pod-rank-1", "127.0.0.1")
	if p.find("default/pod-rank-1") != first {
		t.Error("an update without a change starts anew")
	}
	p.event(t, datalayer.EventAddOrUpdate, "pod-rank-1", "127.0.0.2")
	eventually(t, "second address", holds(2))
	eventually(t, "first connection closed", func() bool { return !first.connected.Load() })
	second := p.find("default/pod-rank-1")
	p.event(t, datalayer.EventDelete, "pod-rank-1", "127.0.0.2")
	eventually(t, "second connection closed", func() bool { return !second.connected.Load() })
	if err := p.ExtractEndpoint(t.Context(), datalayer.EndpointEvent{}); err == nil {
		t.Error("an event without an endpoint is taken")
	}
	if err := p.Follow("default/pod", "", 0); err == nil {
		t.Error("an endpoint without an address is taken")
	}
}

func TestProducerWithoutReplaySettles(t *testing.T) {
	port := freePorts(t)
	engine := newPublisher(t, "127.0.0.1", port)
	engine.publish()
	p := testProducer(t, fmt.Sprintf(`{"port": %d, "settle": "1h"}`, port), nil)
	p.event(t, datalayer.EventAddOrUpdate, "pod", "127.0.0.1")
	eventually(t, "an event arrives", func() bool {
		engine.publish(engine.engine.store("GPU", sequenceOf(0, 0, 6), 0, 1))
		_, _, blocks := p.state()
		return blocks > 0
	})
	if found := p.ask(t, bodyOf(sequenceOf(0, 0, 6)), "pod"); len(found) != 0 {
		t.Errorf("evidence of half a history: %v", found)
	}
	if testutil.ToFloat64(p.metrics.lookups[lookupSettling]) != 1 {
		t.Error("not counted as settling")
	}
}

// TestProducerUnderConcurrentChange has several engines publish and restart
// while requests come in and endpoints come and go.
func TestProducerUnderConcurrentChange(t *testing.T) {
	const engines, rounds = 3, 40
	port := freePorts(t)
	p := testProducer(t, fmt.Sprintf(`{"port": %d, "replayPort": %d}`, port, port+1), nil)
	a := sequenceOf(0, 0, 6)
	var all sync.WaitGroup
	for i := range engines {
		address, name := fmt.Sprintf("127.0.0.%d", i+1), fmt.Sprintf("pod%d", i)
		engine := newPublisher(t, address, port)
		p.event(t, datalayer.EventAddOrUpdate, name, address)
		all.Go(func() {
			for round := range rounds {
				engine.publish(engine.engine.store("GPU", a, round%6, round%6+1))
				if event, ok := engine.engine.evict("GPU", a, 5); ok {
					engine.lose(event)
				}
				if round == rounds/2 && i == 0 {
					engine.restart()
				}
				if round%10 == 9 && i == 1 {
					p.event(t, datalayer.EventDelete, name, address)
					p.event(t, datalayer.EventAddOrUpdate, name, address)
				}
			}
			engine.publish(engine.engine.store("GPU", a, 0, 6))
			want, _ := engine.engine.prefix(a)
			eventually(t, name+" agrees", func() bool {
				m, _, ok := p.Match(Prompt{Tokens: a}, "default/"+name)
				return ok && m.CachedBlocks == want
			})
		})
	}
	for range 4 {
		all.Go(func() {
			for range rounds {
				p.ask(t, bodyOf(a), "pod0", "pod1", "pod2")
			}
		})
	}
	all.Wait()
}

func TestRankIsReadFromTheEndpointsName(t *testing.T) {
	for name, want := range map[string]int{"pod-rank-0": 0, "pod-rank-7": 7, "pod": 0, "a-rank-b": 0, "x-rank-3-rank-1": 1, "pod-rank-99999": 0} {
		if got := rank(name); got != want {
			t.Errorf("%s: rank %d, want %d", name, got, want)
		}
	}
}

func TestFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handle := fwkplugin.NewEppHandle(ctx, func() []types.NamespacedName { return nil })
	for range 2 { // twice in one process
		made, err := Factory("events", json.RawMessage(`{"port": 6000}`), handle)
		if err != nil {
			t.Fatal(err)
		}
		if got := made.TypedName(); got.Type != Type || got.Name != "events" {
			t.Errorf("named %v", got)
		}
	}
	if _, err := Factory("events", json.RawMessage(`{"prot": 6000}`), handle); err == nil || !strings.Contains(err.Error(), "prot") {
		t.Errorf("unknown field: %v", err)
	}
}

func TestConfig(t *testing.T) {
	good := `{"port": 6000, "replayPort": 6001, "topic": "kv@", "blockSize": 16, "offloadChunkBlocks": 2, "maxBlocks": 100,
		"maxMessageBytes": 2048, "settle": "1m", "timeout": "1s", "maxPromptTokens": 10, "tokenizer": {"url": "http://t:1", "timeout": "50ms"}}`
	want := &Config{Port: 6000, ReplayPort: 6001, Topic: "kv@", BlockSize: 16, OffloadChunkBlocks: 2, MaxBlocks: 100,
		MaxMessageBytes: 2048, Settle: 60e9, Timeout: 1e9, MaxPromptTokens: 10,
		Tokenizer: &TokenizerConfig{URL: "http://t:1", Timeout: 50e6, CacheTokens: defaultCacheTokens, MaxConcurrent: defaultMaxConcurrent}}
	if diff := cmp.Diff(want, testConfig(t, good)); diff != "" {
		t.Error(diff)
	}
	for bad, names := range map[string][]string{
		`{"port": 0, "maxBlocks": 0}`:                {"port: 0 ", "maxBlocks: 0 "},
		`{"port": 5000, "replayPort": 5000}`:         {"replayPort: 5000"},
		`{"settle": 5}`:                              {"5 is not a duration"},
		`{"settle": "5 minutes"}`:                    {`"5 minutes" is not a duration`},
		`{"tokenizer": {"timeout": "1s"}}`:           {"tokenizer.timeout: 1s"},
		`{"tokenizer": {"url": "t:8000"}}`:           {"tokenizer.url"},
		`{"tokenizer": {"cache": 1}}`:                {"tokenizer", "cache"},
		`{"blockSize": -1}{}`:                        {"follows"},
		`[]`:                                         {Type},
		`{"replayPort": 70000, "blockSize": 100000}`: {"replayPort", "blockSize"},
	} {
		_, err := ParseConfig([]byte(bad))
		if err == nil {
			t.Errorf("%s: accepted", bad)
			continue
		}
		for _, name := range names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %q does not say %q", bad, err, name)
			}
		}
	}
}
