package adapter

import (
	"testing"
	"time"
)

var (
	stream  = map[string]string{":status": "200", "content-type": "text/event-stream; charset=utf-8"}
	whole   = map[string]string{":status": "200", "content-type": "application/json"}
	refused = map[string]string{":status": "400", "content-type": "application/json"}
)

// part is one call of ResponseBody.
type part struct {
	after time.Duration
	Piece
}

var (
	silent = Piece{CachedTokens: Unknown}
	broken = Piece{CachedTokens: Unknown, End: true}
	ended  = Piece{End: true, PromptTokens: 1000, CompletionTokens: 7, CachedTokens: Unknown}
)

func TestResponses(t *testing.T) {
	running := Piece{PromptTokens: 1000, CompletionTokens: 1, CachedTokens: 200}
	for _, test := range []struct {
		name     string
		streamed bool
		headers  map[string]string // nil: no response began
		parts    []part
		ttft     float64 // seconds, 0 for none
		outputs  float64
		computed string // bucket of computed tokens
	}{
		{"streamed", true, stream, []part{{2 * time.Second, silent}, {time.Second, silent}, {time.Second, ended}}, 2, 1, "unknown"},
		{"streamed with running usage", true, stream, []part{{time.Second, running}, {time.Second, ended}}, 1, 1, "512"},
		{"streamed in one piece", true, stream, []part{{time.Second, ended}}, 1, 1, "unknown"},
		{"streamed without usage", true, stream, []part{{time.Second, silent}, {0, broken}}, 1, 0, "unknown"},
		{"not streamed", false, whole, []part{{3 * time.Second, ended}}, 0, 1, ""},
		{"stream asked for, not given", true, whole, []part{{time.Second, ended}}, 0, 1, ""},
		{"refused", true, refused, []part{{time.Second, silent}, {0, broken}}, 0, 0, ""},
		{"refused as a stream", true, map[string]string{":status": "500", "content-type": "text/event-stream"}, []part{{time.Second, silent}, {0, ended}}, 0, 0, ""},
		{"client went away before headers", true, nil, []part{{time.Second, broken}}, 0, 0, ""},
		{"client went away before the first token", true, stream, []part{{time.Second, broken}}, 0, 0, ""},
		{"proxy without status", true, map[string]string{}, []part{{time.Second, silent}, {0, ended}}, 1, 1, "unknown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, threshold)
			r := routed(test.streamed, little)
			f.Decide(t.Context(), r)
			f.respond(r, test.headers, test.parts)

			started := f.counter("selective_kv_cost_started_total")
			if (started == 1) != test.streamed {
				t.Errorf("%g requests whose first token is awaited, streamed %v", started, test.streamed)
			}
			count := 0.0
			if test.ttft > 0 {
				count = 1
			}
			if got := f.counter("selective_kv_request_ttft_seconds", "action", "recompute"); got != count {
				t.Errorf("%g first tokens, want %g", got, count)
			}
			if got := f.counter("selective_kv_cost_ttft_seconds_total"); got != test.ttft {
				t.Errorf("first token after %g s, want %g", got, test.ttft)
			}
			if test.computed != "" && f.counter("selective_kv_cost_finished_total", "computed", test.computed) != 1 {
				t.Errorf("not counted under computed=%s", test.computed)
			}
			if got := f.counter("selective_kv_request_output_tokens", "action", "recompute"); got != test.outputs {
				t.Errorf("%g outputs, want %g", got, test.outputs)
			}
			if f.inFlight.get(r.Key) != nil || f.inFlight.n.Load() != 0 {
				t.Error("still remembered after the end")
			}
		})
	}
}

func (f *fixture) respond(r *Request, headers map[string]string, parts []part) {
	if headers != nil {
		f.ResponseHeader(r.Key, headers, r.Body)
	}
	for _, p := range parts {
		f.clock = f.clock.Add(p.after)
		f.ResponseBody(r.Key, p.Piece)
	}
}

// TestResponseOfUnknown: hooks of requests that were never decided.
func TestResponseOfUnknown(t *testing.T) {
	f := newFixture(t, threshold)
	f.respond(routed(true, little), stream, []part{{0, silent}, {0, ended}})
	f.ResponseHeader(nil, nil, nil)
	if got := f.counter("selective_kv_request_output_tokens"); got != 0 {
		t.Errorf("%g outputs of requests without a decision", got)
	}
}

// TestReplacedByPlugin: another plugin of the EPP overwrites the field after
// the decision.
func TestReplacedByPlugin(t *testing.T) {
	for name, test := range map[string]struct {
		after func(body map[string]any) map[string]any
		want  float64
	}{
		"kept":     {params(map[string]any{"max_load_tokens": 0, "more": true}), 0},
		"replaced": {params(map[string]any{"do_remote_decode": true}), 1},
		"string":   {params("x"), 1},
		"removed":  {params(nil), 1},
		"no body":  {func(map[string]any) map[string]any { return nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			r := routed(true, little)
			f.Decide(t.Context(), r)
			r.Body = test.after(r.Body)
			before := encoded(t, r.Body)
			f.respond(r, stream, []part{{time.Second, silent}, {0, ended}})
			if got := f.faults(FaultPlugin); got != test.want {
				t.Errorf("counted %g times, want %g", got, test.want)
			}
			if got := f.counter("selective_kv_request_ttft_seconds"); got != 1-test.want {
				t.Errorf("%g first tokens put down to the decision", got)
			}
			if encoded(t, r.Body) != before {
				t.Error("the payload was changed after it was sent")
			}
		})
	}
}

func params(value any) func(map[string]any) map[string]any {
	return func(body map[string]any) map[string]any {
		body[fieldParams] = value
		return body
	}
}
