//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

// TestE2E is one fleet; each part leaves it as the next expects it.
func TestE2E(t *testing.T) {
	f := startFleet(t)
	f.part("Thresholds", f.testThresholds)
	f.part("Tuner", f.testTuner)
	f.write(100, 8)
	f.part("Bodies", f.testBodies)
	f.part("Refused", f.testRefused)
	f.part("Hostile", f.testHostile)
	f.part("Parameters", f.testParameters)
	f.part("Gate", f.testGate)
	f.part("Responses", f.testResponses)
	f.part("Spans", f.testSpans)
	f.part("Restarts", f.testRestarts)
	f.part("Overhead", f.testOverhead)
	f.part("Removal", f.testRemoval)
}

// testThresholds: the static parameters, 100 tokens, tell a hot prompt from a
// cold one, and the engines do as they are told.
func (f *fleet) testThresholds(t *testing.T) {
	for _, e := range f.epps {
		before := f.restored()
		if a := f.send(e, completions, completion(hot)); limited(t, a) {
			t.Errorf("%s: 320 reusable tokens, arrived as %s", e.name, a.body)
		}
		if got := f.restored() - before; got != (cpuBlocks-gpuBlocks)*blockSize {
			t.Errorf("the engine restored %d tokens of a hot prompt", got)
		}
		before = f.restored()
		if a := f.send(e, completions, completion(cold)); !limited(t, a) {
			t.Errorf("%s: nothing reusable, arrived as %s", e.name, a.body)
		}
		if got := f.restored() - before; got != 0 {
			t.Errorf("the engine restored %d tokens although told not to", got)
		}
	}
}

func (f *fleet) restored() (total int) {
	for _, e := range f.engines {
		s, err := fetch(fmt.Sprintf("%s:%d", e.ip, enginePort))
		if err != nil {
			f.t.Fatal(err)
		}
		total += int(s.sum("vllm:prompt_tokens_by_source_total", "source=external_kv_transfer"))
	}
	return total
}

// body is a request and what becomes of it. %s in text is the member
// kv_transfer_params, of which params was sent and want arrives; empty is absent.
type body struct{ name, path, text, params, want string }

// bodies are those that both Endpoint Pickers treat alike.
func bodies() []body {
	large := quote(strings.Repeat("naïve 日本 <b> & ", 1<<20/20))
	return []body{
		{"plain", completions, `{"model":"m","prompt":"` + cold + `"%s}`, ``, `{"max_load_tokens":0}`},
		{"null", completions, `{"model":"m","prompt":"` + cold + `"%s}`, `null`, `{"max_load_tokens":0}`},
		{"client's limit", completions, `{"model":"m","prompt":"` + cold + `"%s}`, `{"max_load_tokens":4096,"a":{"b":[1,null,"é"]}}`, `{"max_load_tokens":0,"a":{"b":[1,null,"é"]}}`},
		{"string", completions, `{"model":"m","prompt":"` + cold + `"%s}`, `"x"`, `"x"`},
		{"array", completions, `{"model":"m","prompt":"` + cold + `"%s}`, `[{"max_load_tokens":1}]`, `[{"max_load_tokens":1}]`},
		{"unicode", completions, `{"model":"m","prompt":"日本 \ud83d\ude00 \u0000 <b>& ` + cold + `"%s}`, ``, `{"max_load_tokens":0}`},
		{"nested", completions, `{"model":"m","prompt":"` + cold + `","logit_bias":{"1":{"kv_transfer_params":{"max_load_tokens":5}}},"max_load_tokens":5%s}`, ``, `{"max_load_tokens":0}`},
		{"1 MiB", completions, `{"model":"m","prompt":` + large + `%s}`, ``, `{"max_load_tokens":0}`},
		{"several prompts", completions, `{"model":"m","prompt":["` + cold + `","` + cold + `"],"n":2%s}`, ``, `{"max_load_tokens":0}`},
		{"several prompts, hot", completions, `{"model":"m","prompt":["` + cold + `",` + quote(hot) + `]%s}`, `{"max_load_tokens":7,"a":1}`, `{"a":1}`},
		{"streaming", completions, `{"model":"m","prompt":"` + cold + `","stream":true,"stream_options":{"include_usage":true}%s}`, ``, `{"max_load_tokens":0}`},
		{"chat", chat, `{"model":"m","messages":[{"role":"user","content":"` + cold + `"}],"tools":[{"type":"function","function":{"name":"f"}}]%s}`, ``, `{"max_load_tokens":0}`},
		{"chat, hot", chat, `{"model":"m","messages":[{"role":"user","content":` + quote(hot) + `}]%s}`, `{"max_load_tokens":7}`, `{}`},
	}
}

// testBody compares what arrives with what was sent.
func (f *fleet) testBody(test body) {
	f.part(test.name, func(t *testing.T) {
		a := f.send(f.epps[0], test.path, with(test.text, test.params))
		if diff := cmp.Diff(value(t, with(test.text, test.want)), value(t, string(a.body))); diff != "" {
			t.Errorf("sent and arrived differ: %s", diff)
		}
		if a.path != test.path {
			t.Errorf("arrived at %s", a.path)
		}
	})
}

func (f *fleet) testBodies(t *testing.T) {
	for _, test := range bodies() {
		f.testBody(test)
	}
	f.testBody(body{"image", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]%s}`, `{"max_load_tokens":7}`, `{"max_load_tokens":7}`})
	f.part("big integers are the framework's loss", func(t *testing.T) {
		a := f.send(f.epps[0], completions, `{"model":"m","prompt":"p","seed":9007199254740993,"kv_transfer_params":{"id":9007199254740993}}`)
		want := `{"kv_transfer_params":{"id":9007199254740992,"max_load_tokens":0},"model":"m","prompt":"p","seed":9007199254740992}`
		if string(a.body) != want {
			t.Errorf("arrived as %s, documented as %s", a.body, want)
		}
	})
}

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func with(body, params string) string {
	if params != "" {
		params = `,"kv_transfer_params":` + params
	}
	return strings.Replace(body, "%s", params, 1)
}

func value(t *testing.T, raw string) (v any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// testRefused: what the framework refuses, it refuses by itself.
func (f *fleet) testRefused(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":  "--boundary\r\nContent-Disposition: form-data",
		"token IDs": `{"model":"m","prompt":[1,2,3]}`,
		"no model":  `{"prompt":"p"}`,
	} {
		f.part(name, func(t *testing.T) { f.refuses(t, f.epps[0], body) })
	}
}

// testParameters writes the file and asks every replica, by its metrics and by
// what arrives.
func (f *fleet) testParameters(t *testing.T) {
	for _, minimum := range []store.Tokens{321, 320, store.Never, 1, 100} {
		revision := f.write(minimum, store.NoGate)
		start := time.Now()
		for _, e := range f.epps {
			e.shows(float64(revision), time.Second, "selective_kv_revision")
			e.shows(1, time.Second, "selective_kv_source", "source=store")
		}
		t.Logf("minimum %s in force in %d replicas after %s", minimum, len(f.epps), time.Since(start).Round(time.Millisecond))
		for _, e := range f.epps {
			if got, want := limited(t, f.send(e, completions, completion(hot))), minimum > 320; got != want {
				t.Errorf("%s: minimum %s, told not to load: %v, want %v", e.name, minimum, got, want)
			}
		}
	}
}

// testGate: a long queue stops restores, and a queue that is no longer measured
// does not stop them for ever.
func (f *fleet) testGate(t *testing.T) {
	f.write(100, 8)
	queue := func(n int) {
		for _, e := range f.engines {
			e.setWaiting(n)
		}
	}
	queue(40)
	for _, e := range f.epps {
		e.shows(modelServers, 20*time.Second, "selective_kv_endpoint_gate_closed")
		if a := f.send(e, completions, completion(hot)); !limited(t, a) {
			t.Errorf("%s: 40 requests wait, arrived as %s", e.name, a.body)
		}
	}
	queue(-1)
	for _, e := range f.epps {
		eventually(t, e.name+" restores again", 5*time.Second, func() bool {
			return !limited(t, f.send(e, completions, completion(hot)))
		})
		s, err := e.scrape()
		if err != nil || s.sum("selective_kv_adapter_faults_total", "reason=queue_metric_absent") == 0 {
			t.Errorf("%s does not say that the metric is missing (%v)", e.name, err)
		}
	}
	queue(0)
}

// testResponses: first tokens and outputs, by what was decided.
func (f *fleet) testResponses(t *testing.T) {
	e := f.epps[0]
	before, err := e.scrape()
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	for range n {
		for prompt, stream := range map[string]string{hot: `,"stream":true`, cold: ``} {
			body := strings.TrimSuffix(completion(prompt), "}") + stream + "}"
			f.send(e, completions, body)
		}
	}
	after, err := e.scrape()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, action string
		want         float64
	}{
		{"selective_kv_request_ttft_seconds", "load", n},
		{"selective_kv_request_ttft_seconds", "recompute", 0},
		{"selective_kv_request_output_tokens", "load", n},
		{"selective_kv_request_output_tokens", "recompute", n},
		{"selective_kv_cost_started_total", "load", n},
		{"selective_kv_cost_finished_total", "load", n},
	} {
		label := "action=" + test.action
		if got := after.sum(test.name, label) - before.sum(test.name, label); got != test.want {
			t.Errorf("%s{%s} grew by %g, want %g", test.name, label, got, test.want)
		}
	}
}

// testOverhead reads the framework's own measure of the plugin, under load.
func (f *fleet) testOverhead(t *testing.T) {
	const clients, each = 8, 250
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for range each {
				if _, err := f.persist(t.Context(), client, completion(hot)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, e := range f.epps {
		s, err := e.scrape()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range s["inference_extension_plugin_duration_seconds"].GetMetric() {
			if !has(m, []string{"extension_point=PreRequest", "plugin_type=selective-kv-policy"}) {
				continue
			}
			h := m.GetHistogram()
			bound := math.Inf(1)
			for _, b := range h.GetBucket() {
				if float64(b.GetCumulativeCount()) >= 0.99*float64(h.GetSampleCount()) {
					bound = min(bound, b.GetUpperBound())
				}
			}
			t.Logf("%s: PreRequest of %d requests: mean %.1f µs, 99%% within %g µs (a bucket's edge)", e.name,
				h.GetSampleCount(), h.GetSampleSum()/float64(h.GetSampleCount())*1e6, bound*1e6)
		}
	}
}

// testRemoval: the series of a pod that is gone go with it.
func (f *fleet) testRemoval(t *testing.T) {
	gone := f.engines[0]
	f.api.deletePod(gone.name)
	for _, e := range f.epps {
		e.shows(modelServers-1, 10*time.Second, "selective_kv_endpoints")
		e.forgot(namespace + "/" + gone.name + "-rank-0")
	}
	for range 20 {
		if a := f.send(f.epps[0], completions, completion(cold)); a.engine == gone.name {
			t.Fatal("sent to a pod that is gone")
		}
	}
}
