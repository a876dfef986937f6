package kvevents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
)

// spelling is a tokenizer that makes a token of each byte, and remembers calls.
type spelling struct {
	mu    sync.Mutex
	calls []string
	err   error
}

func (s *spelling) Tokenize(_ context.Context, server string, body []byte) ([]uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, server+" "+string(body))
	if s.err != nil {
		return nil, s.err
	}
	var call struct{ Prompt string }
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, err
	}
	tokens := make([]uint32, len(call.Prompt))
	for i := range tokens {
		tokens[i] = uint32(call.Prompt[i])
	}
	return tokens, nil
}

func TestTokensOfRequests(t *testing.T) {
	tests := map[string]struct {
		body  string
		want  [][]uint32
		why   outcome
		calls []string
	}{
		"token IDs":          {body: `{"prompt": [1, 2, 4294967295]}`, want: [][]uint32{{1, 2, 4294967295}}},
		"lists of token IDs": {body: `{"prompt": [[1, 2], [], [3]]}`, want: [][]uint32{{1, 2}, {}, {3}}},
		"text": {body: `{"model": "m", "prompt": "ab", "max_tokens": 9}`, want: [][]uint32{{97, 98}},
			calls: []string{`s:1 {"model":"m","prompt":"ab"}`}},
		"texts": {body: `{"prompt": ["a", "b"], "add_special_tokens": false}`, want: [][]uint32{{97}, {98}},
			calls: []string{`s:1 {"add_special_tokens":false,"prompt":"a"}`, `s:1 {"add_special_tokens":false,"prompt":"b"}`}},
		"chat": {body: `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": [1], "stream": true}`, want: [][]uint32{{}},
			calls: []string{`s:1 {"messages":[{"content":[{"text":"a","type":"text"}],"role":"user"}],"tools":[1]}`}},
		"images":              {body: `{"messages": [{"content": [{"type": "image_url"}]}]}`, why: outcomeMultimodal},
		"messages of numbers": {body: `{"messages": [1]}`, why: outcomeMultimodal},
		"nothing":             {body: `{}`, why: outcomeUnsupported},
		"an empty list":       {body: `{"prompt": []}`, why: outcomeUnsupported},
		"a number":            {body: `{"prompt": 1}`, why: outcomeUnsupported},
		"mixed":               {body: `{"prompt": ["a", 1]}`, why: outcomeUnsupported},
		"mixed lists":         {body: `{"prompt": [[1], 1]}`, why: outcomeUnsupported},
		"fractions":           {body: `{"prompt": [1.5]}`, why: outcomeUnsupported},
		"negative":            {body: `{"prompt": [-1]}`, why: outcomeUnsupported},
		"beyond 32 bits":      {body: `{"prompt": [4294967296]}`, why: outcomeUnsupported},
		"truncated":           {body: `{"prompt": [1], "truncate_prompt_tokens": 5}`, why: outcomeUnsupported},
		"not truncated":       {body: `{"prompt": [1], "truncate_prompt_tokens": null}`, want: [][]uint32{{1}}},
		"too many":            {body: `{"prompt": [1,2,3,4,5,6,7,8,9]}`, why: outcomeTooLong},
		"too many, together":  {body: `{"prompt": [[1,2,3,4,5],[6,7,8,9]]}`, why: outcomeTooLong},
		"lists without end":   {body: `{"prompt": [` + strings.Repeat(`[],`, maxPrompts) + `[]]}`, why: outcomeTooLong},
		"texts without end":   {body: `{"prompt": [` + strings.Repeat(`"",`, maxPrompts) + `""]}`, why: outcomeTooLong},
		"too many, out of text": {body: `{"prompt": "123456789"}`, why: outcomeTooLong,
			calls: []string{`s:1 {"prompt":"123456789"}`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tokenizer := &spelling{}
			p := testProducer(t, `{"maxPromptTokens": 8}`, tokenizer)
			for _, numbers := range []bool{false, true} {
				d := json.NewDecoder(strings.NewReader(test.body))
				if numbers {
					d.UseNumber()
				}
				var body scheduling.PayloadMap
				if err := d.Decode(&body); err != nil {
					t.Fatal(err)
				}
				tokenizer.calls = nil
				prompts, err := p.prompts(t.Context(), &scheduling.LLMRequest{TargetModel: "m", Body: &scheduling.LLMRequestBody{Payload: body}}, "s:1")
				if test.want == nil {
					if err != refusal(test.why) {
						t.Errorf("got %v, want %s", err, outcomeNames[test.why])
					}
				} else if err != nil {
					t.Error(err)
				}
				var got [][]uint32
				for _, prompt := range prompts {
					got = append(got, prompt.Tokens)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(test.calls, tokenizer.calls); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestTokensOfOtherPlugins(t *testing.T) {
	p := testProducer(t, "", nil)
	r := &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{}, TokenizedPrompt: &scheduling.TokenizedPrompt{TokenIDs: []uint32{1}}}
	if prompts, err := p.prompts(t.Context(), r, ""); err != nil || len(prompts) != 1 || len(prompts[0].Tokens) != 1 {
		t.Errorf("got %v, %v", prompts, err)
	}
	r.TokenizedPrompt.MultiModalFeatures = make([]scheduling.MultiModalFeature, 1)
	if _, err := p.prompts(t.Context(), r, ""); err != refusal(outcomeMultimodal) {
		t.Errorf("got %v", err)
	}
}

// TestTokenizerIsSparedWithoutAnEndpoint has an endpoint that is not connected.
func TestTokenizerIsSparedWithoutAnEndpoint(t *testing.T) {
	tokenizer := &spelling{}
	p := testProducer(t, "", tokenizer)
	p.pretend("pod").connected.Store(false)
	if found := p.ask(t, `{"prompt": "text"}`, "pod", "stranger"); len(found) > 0 || len(tokenizer.calls) > 0 {
		t.Errorf("found %v, calls %v", found, tokenizer.calls)
	}
	for counter, want := range map[prometheus.Counter]float64{
		p.metrics.requests[outcomeNoEndpoint]: 1, p.metrics.lookups[lookupDisconnected]: 1, p.metrics.lookups[lookupUnfollowed]: 1,
	} {
		if got := testutil.ToFloat64(counter); got != want {
			t.Errorf("%v: %v", counter.Desc(), got)
		}
	}
}

func TestRequestsWithoutTokensAreCounted(t *testing.T) {
	raw := &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{Payload: scheduling.RawPayload("x")}}
	text := &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{Payload: scheduling.PayloadMap{"prompt": "x"}}}
	for _, test := range []struct {
		request   *scheduling.LLMRequest
		tokenizer Tokenizer
		want      outcome
	}{
		{nil, nil, outcomeUnsupported},
		{&scheduling.LLMRequest{}, nil, outcomeUnsupported},
		{raw, nil, outcomeUnsupported},
		{text, nil, outcomeNoTokenizer},
		{text, &spelling{err: ErrTokenizerBusy}, outcomeTokenizerBusy},
		{text, &spelling{err: context.DeadlineExceeded}, outcomeTokenizerTimeout},
		{text, &spelling{err: http.ErrServerClosed}, outcomeTokenizerError},
		{text, &spelling{}, outcomeTokens},
	} {
		p := testProducer(t, "", test.tokenizer)
		p.pretend("pod")
		e := scheduling.NewEndpoint(metadata("pod", "127.0.0.1"), nil, nil)
		if err := p.PrepareRequestData(t.Context(), test.request, []scheduling.Endpoint{e}); err != nil {
			t.Error(err)
		}
		for why := range outcome(outcomes) {
			got, want := testutil.ToFloat64(p.metrics.requests[why]), 0.0
			if why == test.want {
				want = 1
			}
			if got != want {
				t.Errorf("%s: %v counted as %s", outcomeNames[test.want], got, outcomeNames[why])
			}
		}
		if len(e.Keys()) > 0 {
			t.Errorf("%s: published %v", outcomeNames[test.want], e.Keys())
		}
	}
}

// tokenizeServer answers POST /tokenize with a handler, and gives a tokenizer
// that asks it.
func tokenizeServer(t *testing.T, parameters string, handle http.HandlerFunc) (*httpTokenizer, string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", handle)
	s := httptest.NewServer(mux)
	c := testConfig(t, `{"tokenizer": `+parameters+`}`)
	tokenizer := newHTTPTokenizer(c.Tokenizer, testMetrics(t))
	t.Cleanup(func() {
		tokenizer.client.CloseIdleConnections()
		s.Close()
	})
	return tokenizer, strings.TrimPrefix(s.URL, "http://")
}

func TestHTTPTokenizerRemembers(t *testing.T) {
	tokenizer, server := tokenizeServer(t, `{"cacheTokens": 140}`, func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Prompt string }
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(w, `{"count": 2, "max_model_len": 100, "tokens": [%s, 7], "token_strs": null}`, call.Prompt)
	})
	ask := func(prompt string, wantCalls float64) {
		t.Helper()
		got, err := tokenizer.Tokenize(t.Context(), server, []byte(`{"prompt": "`+prompt+`"}`))
		if err != nil || len(got) != 2 || fmt.Sprint(got[0]) != prompt {
			t.Errorf("%s: %v, %v", prompt, got, err)
		}
		if calls := testutil.ToFloat64(tokenizer.metrics.tokenizerCalls); calls != wantCalls {
			t.Errorf("%s: %v calls, want %v", prompt, calls, wantCalls)
		}
	}
	ask("1", 1)
	ask("2", 2)
	ask("1", 2)
	ask("3", 3) // two fit: 2 is forgotten
	ask("1", 3)
	ask("2", 4)
	if tokenizer.cache.held > 140 || len(tokenizer.cache.byKey) != 2 {
		t.Errorf("%d tokens held, %d texts", tokenizer.cache.held, len(tokenizer.cache.byKey))
	}
}

func TestHTTPTokenizerFails(t *testing.T) {
	for name, answer := range map[string]string{"garbage": "{", "no tokens": `{"count": 0}`, "negative": `{"tokens": [-1]}`, "text": `{"tokens": "a"}`} {
		tokenizer, server := tokenizeServer(t, `{}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
		if got, err := tokenizer.Tokenize(t.Context(), server, []byte(`{}`)); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	tokenizer, server := tokenizeServer(t, `{}`, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) })
	if _, err := tokenizer.Tokenize(t.Context(), server, nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPTokenizerIsBounded(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	tokenizer, server := tokenizeServer(t, `{"timeout": "400ms", "maxConcurrent": 1}`, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	first := make(chan error)
	go func() {
		_, err := tokenizer.Tokenize(context.Background(), server, []byte(`1`))
		first <- err
	}()
	<-arrived
	if _, err := tokenizer.Tokenize(t.Context(), server, []byte(`2`)); err != ErrTokenizerBusy {
		t.Errorf("second call: %v", err)
	}
	if err := tokenizerRefusal(<-first); err != refusal(outcomeTokenizerTimeout) {
		t.Errorf("first call: %v", err)
	}
	close(release)
}

// TestTooLate: the framework has given up, and may be writing to the body.
func TestTooLate(t *testing.T) {
	tokenizer := &spelling{}
	p := testProducer(t, "", tokenizer)
	p.pretend("pod")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &scheduling.LLMRequest{Body: &scheduling.LLMRequestBody{Payload: scheduling.PayloadMap{"prompt": "x"}}}
	e := scheduling.NewEndpoint(metadata("pod", "127.0.0.1"), nil, nil)
	if err := p.PrepareRequestData(ctx, r, []scheduling.Endpoint{e}); err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(p.metrics.requests[outcomeTooLate]); got != 1 || len(tokenizer.calls) > 0 {
		t.Errorf("counted %g times, calls %v", got, tokenizer.calls)
	}
}
