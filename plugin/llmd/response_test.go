package llmd

import (
	"context"
	"testing"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
)

var (
	stream  = map[string]string{":status": "200", "content-type": "text/event-stream; charset=utf-8"}
	whole   = map[string]string{":status": "200", "content-type": "application/json"}
	refused = map[string]string{":status": "400", "content-type": "application/json"}
)

// piece is one call of ResponseBody.
type piece struct {
	after time.Duration
	end   bool
	usage requesthandling.Usage
}

func usage(prompt, completion int, cached ...int) requesthandling.Usage {
	u := requesthandling.Usage{PromptTokens: prompt, CompletionTokens: completion}
	for _, n := range cached {
		u.PromptTokenDetails = &requesthandling.PromptTokenDetails{CachedTokens: n}
	}
	return u
}

// TestResponses: what the framework says of a response is counted.
func TestResponses(t *testing.T) {
	for name, test := range map[string]struct {
		streamed bool
		headers  map[string]string
		pieces   []piece
		ttft     float64 // seconds, 0 for none
		outputs  float64
		computed string // bucket of computed tokens: the engine's word, else that of 1000 blocks less 4
	}{
		"streamed":           {true, stream, []piece{{2 * time.Second, false, requesthandling.Usage{}}, {time.Second, true, usage(1000, 7)}}, 2, 1, "32768"},
		"with running usage": {true, stream, []piece{{time.Second, false, usage(1000, 1, 200)}, {time.Second, true, usage(1000, 7, 200)}}, 1, 1, "512"},
		"not streamed":       {false, whole, []piece{{3 * time.Second, true, usage(1000, 7)}}, 0, 1, ""},
		"refused":            {true, refused, []piece{{time.Second, false, requesthandling.Usage{}}, {0, true, requesthandling.Usage{}}}, 0, 0, ""},
		"client went away":   {true, stream, []piece{{time.Second, true, requesthandling.Usage{}}}, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			request := completion(t, test.streamed)
			f.PreRequest(context.Background(), request, chosen(engine("a", nil, little)))
			f.respond(request, test.headers, test.pieces)
			if got := f.counter("selective_kv_cost_ttft_seconds_total"); got != test.ttft {
				t.Errorf("first token after %g s, want %g", got, test.ttft)
			}
			if test.computed != "" && f.counter("selective_kv_cost_finished_total", "computed", test.computed) != 1 {
				t.Errorf("not counted under computed=%s", test.computed)
			}
			if got := f.counter("selective_kv_request_output_tokens", "action", "recompute"); got != test.outputs {
				t.Errorf("%g outputs, want %g", got, test.outputs)
			}
		})
	}
}

func (f *fixture) respond(request *scheduling.InferenceRequest, headers map[string]string, pieces []piece) {
	if headers != nil {
		f.ResponseHeader(context.Background(), request, &requestcontrol.Response{Headers: headers}, nil)
	}
	for _, p := range pieces {
		f.clock = f.clock.Add(p.after)
		f.ResponseBody(context.Background(), request, &requestcontrol.Response{EndOfStream: p.end, Usage: p.usage, Headers: headers}, nil)
	}
}

// TestResponseOfUnknown: hooks of requests that were never decided.
func TestResponseOfUnknown(t *testing.T) {
	f := newFixture(t, threshold)
	for _, request := range []*scheduling.InferenceRequest{nil, {}, completion(t, true)} {
		f.respond(request, stream, []piece{{0, false, requesthandling.Usage{}}, {0, true, usage(1, 1)}})
		f.ResponseHeader(context.Background(), request, nil, nil)
		f.ResponseBody(context.Background(), request, nil, nil)
	}
	if got := f.counter("selective_kv_request_output_tokens"); got != 0 {
		t.Errorf("%g outputs of requests without a decision", got)
	}
}

// TestReplacedByPlugin: another plugin of the EPP overwrites the field after
// the decision.
func TestReplacedByPlugin(t *testing.T) {
	for name, test := range map[string]struct {
		after any
		want  float64
	}{
		"kept":     {map[string]any{"max_load_tokens": 0, "more": true}, 0},
		"replaced": {map[string]any{"do_remote_decode": true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			request := completion(t, true)
			f.PreRequest(context.Background(), request, chosen(engine("a", nil, little)))
			request.Body.Payload.(requesthandling.PayloadMap)["kv_transfer_params"] = test.after
			f.respond(request, stream, []piece{{0, true, usage(1, 1)}})
			if got := f.fault("replaced_by_plugin"); got != test.want {
				t.Errorf("counted %g times, want %g", got, test.want)
			}
		})
	}
}
