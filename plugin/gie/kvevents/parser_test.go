package kvevents

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requesthandling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
)

func TestParserTakesTokenIDs(t *testing.T) {
	made, err := ParserFactory("tokens", json.RawMessage(`{}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	parser := made.(requesthandle.Parser)
	for body, want := range map[string]*scheduling.CompletionsRequest{
		`{"model": "m", "prompt": [1, 20, 3], "cache_salt": "s", "stream": true}`: {Prompt: scheduling.Prompt{Strings: []string{"1 20 3 "}}, CacheSalt: "s"},
		`{"model": "m", "prompt": [[1], [2, 3]]}`:                                 {Prompt: scheduling.Prompt{Strings: []string{"1 ", "2 3 "}}},
		`{"model": "m", "prompt": [1, "a"]}`:                                      nil,
		`{"model": "m", "prompt": [-1]}`:                                          nil,
		`{"model": "m", "prompt": [[1], 2]}`:                                      nil,
		`{"model": "m", "prompt": []}`:                                            nil,
		`{"model": "m", "prompt": 5}`:                                             nil,
		`{"model": "m"}`:                                                          nil,
		`[1]`:                                                                     nil,
		`{`:                                                                       nil,
	} {
		got, err := parser.ParseRequest(t.Context(), []byte(body), map[string]string{":path": "/v1/completions"})
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if want == nil {
			continue
		}
		var payload map[string]any
		if err := json.Unmarshal([]byte(body), &payload); err != nil {
			t.Fatal(err)
		}
		stream, _ := payload["stream"].(bool)
		if diff := cmp.Diff(&scheduling.LLMRequestBody{Completions: want, Payload: scheduling.PayloadMap(payload), Stream: stream}, got); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
		if _, err := parser.ParseRequest(t.Context(), []byte(body), map[string]string{":path": "/v1/chat/completions"}); err == nil {
			t.Errorf("%s: taken for a chat", body)
		}
	}
}

func TestParserIsTheOriginalOtherwise(t *testing.T) {
	original := openai.NewOpenAIParser()
	made, err := ParserFactory("tokens", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/completions":      `{"model": "m", "prompt": ["a", "b"], "stream": true}`,
		"/v1/chat/completions": `{"model": "m", "messages": [{"role": "user", "content": "a"}]}`,
		"/v1/responses":        `{"model": "m", "input": "a"}`,
		"/v1/embeddings":       `{"model": "m", "input": [1, 2]}`,
		"/v1/conversations":    `{"model": "m"}`,
		"":                     `{"model": "m", "prompt": ""}`,
	} {
		headers := map[string]string{":path": path}
		want, wantErr := original.ParseRequest(t.Context(), []byte(body), headers)
		got, err := made.(*Parser).ParseRequest(t.Context(), []byte(body), headers)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, want %v", path, err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	if _, err := ParserFactory("tokens", json.RawMessage(`{"a": 1}`), nil); err == nil {
		t.Error("parameters accepted")
	}
}
