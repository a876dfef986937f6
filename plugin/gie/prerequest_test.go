package gie

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

const completions, chat = "/v1/completions", "/v1/chat/completions"

// TestBodies compares what is sent, with a restore forbidden and allowed, with
// what the framework alone would send: they differ in the intended fields and in
// nothing else.
func TestBodies(t *testing.T) {
	long := strings.Repeat("naïve \\u2028 日本 <b> & ", 1<<20/24)
	for _, test := range []struct {
		name, path, body string
		// what kv_transfer_params is when recomputing and when loading; empty
		// is absent
		recompute, load string
	}{
		{"absent", completions, `{"model":"m","prompt":"p"}`, `{"max_load_tokens":0}`, ``},
		{"null", completions, `{"model":"m","prompt":"p","kv_transfer_params":null}`, `{"max_load_tokens":0}`, `null`},
		{"empty", completions, `{"model":"m","prompt":"p","kv_transfer_params":{}}`, `{"max_load_tokens":0}`, `{}`},
		{"client's limit", completions, `{"model":"m","prompt":"p","kv_transfer_params":{"max_load_tokens":4096}}`, `{"max_load_tokens":0}`, `{}`},
		{"other fields", completions, `{"model":"m","prompt":"p","kv_transfer_params":{"max_load_tokens":1,"do_remote_decode":true,"nested":{"a":[1,{"b":null}],"c":"é"},"kv_load_tiers":["cpu"]}}`,
			`{"max_load_tokens":0,"do_remote_decode":true,"nested":{"a":[1,{"b":null}],"c":"é"},"kv_load_tiers":["cpu"]}`,
			`{"do_remote_decode":true,"nested":{"a":[1,{"b":null}],"c":"é"},"kv_load_tiers":["cpu"]}`},
		{"string", completions, `{"model":"m","prompt":"p","kv_transfer_params":"x"}`, `"x"`, `"x"`},
		{"array", completions, `{"model":"m","prompt":"p","kv_transfer_params":[{"max_load_tokens":7}]}`, `[{"max_load_tokens":7}]`, `[{"max_load_tokens":7}]`},
		{"number", completions, `{"model":"m","prompt":"p","kv_transfer_params":1}`, `1`, `1`},
		{"big integers", completions, `{"model":"m","prompt":"p","seed":9007199254740993,"kv_transfer_params":{"id":9007199254740993}}`, `{"max_load_tokens":0,"id":9007199254740993}`, `{"id":9007199254740993}`},
		{"unicode", completions, `{"model":"m","prompt":"日本 \ud83d\ude00 \u0000 <b>&"}`, `{"max_load_tokens":0}`, ``},
		{"nested", completions, `{"model":"m","prompt":"p","logit_bias":{"1":{"kv_transfer_params":{"max_load_tokens":5}}},"max_load_tokens":5}`, `{"max_load_tokens":0}`, ``},
		{"1 MiB", completions, `{"model":"m","prompt":` + quote(t, long) + `}`, `{"max_load_tokens":0}`, ``},
		{"several prompts", completions, `{"model":"m","prompt":["a","b","c"],"n":2}`, `{"max_load_tokens":0}`, ``},
		{"streaming", completions, `{"model":"m","prompt":"p","stream":true,"stream_options":{"include_usage":true}}`, `{"max_load_tokens":0}`, ``},
		{"chat", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function"}]}`, `{"max_load_tokens":0}`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			for action, tiers := range map[string]map[string]int{test.recompute: little, test.load: external} {
				f := newFixture(t, threshold)
				request := parsed(t, test.path, test.body)
				f.PreRequest(context.Background(), request, chosen(engine("a", nil, tiers)))
				want := framework(t, parsed(t, test.path, test.body), action)
				if diff := cmp.Diff(want, decode(t, sent(t, request))); diff != "" {
					t.Errorf("tiers %v: %s", tiers, diff)
				}
			}
		})
	}
}

// framework is what would be sent without the plugin, with other
// kv_transfer_params.
func framework(t *testing.T, request *scheduling.LLMRequest, params string) any {
	body := decode(t, sent(t, request)).(map[string]any)
	delete(body, "kv_transfer_params")
	if params != "" {
		body["kv_transfer_params"] = decode(t, framed(t, params))
	}
	return body
}

// framed takes a value through the framework's number type.
func framed(t *testing.T, raw string) string {
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func decode(t *testing.T, raw string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func quote(t *testing.T, s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestFrameworkLoses records what the framework's own round trip changes, with
// and without the plugin: integers beyond 2^53, escapes, the order of keys.
func TestFrameworkLoses(t *testing.T) {
	got := sent(t, parsed(t, completions, `{"prompt":"<p>","model":"m","seed":9007199254740993}`))
	if want := `{"model":"m","prompt":"\u003cp\u003e","seed":9007199254740992}`; got != want {
		t.Errorf("the framework sends %s, the documentation says %s", got, want)
	}
}

// TestUnchanged says that a body that needs no change is not touched at all.
func TestUnchanged(t *testing.T) {
	for name, body := range map[string]string{
		"nothing to remove": `{"model":"m","prompt":"p"}`,
		"other fields":      `{"model":"m","prompt":"p","kv_transfer_params":{"x":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			request := parsed(t, completions, body)
			before := sent(t, request)
			f.PreRequest(context.Background(), request, chosen(engine("a", nil, external)))
			if got := sent(t, request); got != before {
				t.Errorf("sent %s, want %s", got, before)
			}
		})
	}
}

// TestFailsOpen is everything that can be missing: no panic, no change, a
// counter that says why.
func TestFailsOpen(t *testing.T) {
	body := func(p scheduling.RequestPayload) *scheduling.LLMRequest {
		return &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{Payload: p}}
	}
	good := func() *scheduling.LLMRequest { return completion(t, false) }
	one := chosen(engine("a", nil, little))
	var noMap scheduling.PayloadMap
	for _, test := range []struct {
		name    string
		request *scheduling.LLMRequest
		result  *scheduling.SchedulingResult
		reason  string
	}{
		{"no request", nil, one, "no_body"},
		{"no body", &scheduling.LLMRequest{}, one, "no_body"},
		{"no payload", body(nil), one, "no_body"},
		{"nil map", body(noMap), one, "no_body"},
		{"not JSON", body(scheduling.RawPayload("--boundary")), one, "raw_body"},
		{"gRPC", body(scheduling.PayloadProto{}), one, "grpc_body"},
		{"no result", good(), nil, "no_endpoint"},
		{"no profiles", good(), &scheduling.SchedulingResult{PrimaryProfileName: "default"}, "no_endpoint"},
		{"failed profile", good(), &scheduling.SchedulingResult{PrimaryProfileName: "default",
			ProfileResults: map[string]*scheduling.ProfileRunResult{"default": nil}}, "no_endpoint"},
		{"no endpoints", good(), &scheduling.SchedulingResult{PrimaryProfileName: "default",
			ProfileResults: map[string]*scheduling.ProfileRunResult{"default": {}}}, "no_endpoint"},
		{"nil endpoint", good(), chosen(nil), "no_endpoint"},
		{"endpoint without metadata", good(), chosen(scheduling.NewEndpoint(nil, nil, nil)), "no_endpoint"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, threshold)
			f.PreRequest(context.Background(), test.request, test.result)
			if got := f.counter("selective_kv_adapter_skipped_total", "reason", test.reason); got != 1 {
				t.Errorf("skipped as %s %g times, want 1", test.reason, got)
			}
			if got := f.counter("selective_kv_decisions_total"); got != 0 {
				t.Errorf("%g decisions, want none", got)
			}
		})
	}
}

func TestEvidence(t *testing.T) {
	foreign := engine("a", nil, nil)
	foreign.Put(evidence.PrefixTiersKey, datalayer.Cloneable(foreignAttribute{}))
	unknown := engine("a", nil, nil)
	unknown.Put(evidence.PrefixTiersKey, &evidence.PrefixTiers{Prompts: []plugin.PrefixMatch{{CachedBlocks: 9}}, BlockSize: 64})
	for _, test := range []struct {
		name     string
		endpoint scheduling.Endpoint
		params   string
		reason   plugin.Reason
		foreign  float64
	}{
		{"enough", engine("a", nil, external), ``, plugin.ReasonReusable, 0},
		{"too little", engine("a", nil, little), ``, plugin.ReasonBelowMinimum, 0},
		{"absent", engine("a", nil, nil), ``, plugin.ReasonNoEvidence, 0},
		{"no tiers", unknown, ``, plugin.ReasonNoEvidence, 0},
		{"of another type", foreign, ``, plugin.ReasonNoEvidence, 1},
		{"tier not permitted", engine("a", nil, external), `,"kv_transfer_params":{"kv_load_tiers":["nvme"]}`, plugin.ReasonBelowMinimum, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, threshold)
			f.PreRequest(context.Background(), parsed(t, completions, `{"model":"m","prompt":"p"`+test.params+`}`), chosen(test.endpoint))
			if f.decisions(test.reason) != 1 {
				t.Errorf("not decided as %s", test.reason)
			}
			if got := f.fault("foreign_evidence"); got != test.foreign {
				t.Errorf("foreign evidence %g times, want %g", got, test.foreign)
			}
		})
	}
}

type foreignAttribute struct{}

func (f foreignAttribute) Clone() datalayer.Cloneable { return f }

// TestProfile tells the endpoints apart by their evidence.
func TestProfile(t *testing.T) {
	with, without := engine("with", nil, external), engine("without", nil, little)
	both := profiles("decode", map[string]scheduling.Endpoint{"decode": without, "prefill": with})
	for name, test := range map[string]struct {
		result *scheduling.SchedulingResult
		reason plugin.Reason
	}{
		"primary":                {chosen(with), plugin.ReasonReusable},
		"prefill before primary": {both, plugin.ReasonReusable},
		"prefill did not run":    {profiles("decode", map[string]scheduling.Endpoint{"decode": without, "prefill": nil}), plugin.ReasonBelowMinimum},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			f.PreRequest(context.Background(), completion(t, true), test.result)
			if f.decisions(test.reason) != 1 {
				t.Errorf("not decided as %s", test.reason)
			}
		})
	}
}

// TestCoordinator: what the plugin writes for another endpoint than the one the
// request is sent to is counted, and what comes of it is not put down to it.
func TestCoordinator(t *testing.T) {
	f := newFixture(t, threshold)
	request := completion(t, true)
	f.PreRequest(context.Background(), request, profiles("decode", map[string]scheduling.Endpoint{
		"prefill": engine("p", nil, little), "decode": engine("d", nil, nil),
	}))
	if got := f.fault("replaced_by_coordinator"); got != 1 {
		t.Errorf("counted %g times, want once", got)
	}
	f.respond(request, stream, []piece{{time.Second, false, requestcontrol.Usage{}}, {0, true, usage(1, 1)}})
	if got := f.counter("selective_kv_request_ttft_seconds"); got != 0 {
		t.Error("the response counts as the decision's doing")
	}
}

// TestOriginalStays: a data producer that the framework went on without may still
// be reading the payload, so that the plugin must not write to that map.
func TestOriginalStays(t *testing.T) {
	for name, params := range map[string]string{"created": ``, "edited": `,"kv_transfer_params":{"a":1}`} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			request := parsed(t, completions, `{"model":"m","prompt":"p"`+params+`}`)
			original := request.Body.Payload.(scheduling.PayloadMap)
			before := sent(t, request)
			f.PreRequest(context.Background(), request, chosen(engine("a", nil, little)))
			if !strings.Contains(sent(t, request), `"max_load_tokens":0`) {
				t.Errorf("sent as %s", sent(t, request))
			}
			if after, _ := json.Marshal(original); string(after) != before {
				t.Errorf("the original became %s, was %s", after, before)
			}
		})
	}
}
