package kvevents

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requesthandling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
)

// ParserType is the type of [Parser] in EndpointPickerConfig.
const ParserType = "openai-tokens-parser"

var _ requesthandle.Parser = (*Parser)(nil)

// Parser is the framework's openai-parser for those who send token IDs: that one
// answers 400 to a completion whose prompt is not text, so that the producer
// would never see it. Everything else it parses as the original does.
type Parser struct {
	*openai.OpenAIParser
	name fwkplugin.TypedName
}

// ParserFactory makes the parser for the framework. It has no parameters.
func ParserFactory(name string, parameters json.RawMessage, _ fwkplugin.Handle) (fwkplugin.Plugin, error) {
	if len(parameters) > 0 {
		if err := strict(parameters, &struct{}{}); err != nil {
			return nil, err
		}
	}
	return &Parser{openai.NewOpenAIParser(), fwkplugin.TypedName{Type: ParserType, Name: name}}, nil
}

// TypedName implements the framework's Plugin.
func (p *Parser) TypedName() fwkplugin.TypedName { return p.name }

// ParseRequest implements the framework's Parser. Plugins that want a text find
// the token IDs in decimal, with the same prefixes as the prompt.
func (p *Parser) ParseRequest(ctx context.Context, body []byte, headers map[string]string) (*scheduling.LLMRequestBody, error) {
	parsed, err := p.OpenAIParser.ParseRequest(ctx, body, headers)
	if err == nil || !forCompletions(headers) {
		return parsed, err
	}
	var payload map[string]any
	if json.Unmarshal(body, &payload) != nil {
		return nil, err
	}
	texts, ok := tokenTexts(payload["prompt"])
	if !ok {
		return nil, err
	}
	salt, _ := payload["cache_salt"].(string)
	stream, _ := payload["stream"].(bool)
	return &scheduling.LLMRequestBody{
		Completions: &scheduling.CompletionsRequest{Prompt: scheduling.Prompt{Strings: texts}, CacheSalt: salt},
		Payload:     scheduling.PayloadMap(payload),
		Stream:      stream,
	}, nil
}

// forCompletions looks for the path where the original does.
func forCompletions(headers map[string]string) bool {
	for _, name := range []string{":path", "x-original-path", "x-forwarded-path"} {
		if path := headers[name]; path != "" {
			return strings.HasSuffix(path, "/completions") && !strings.HasSuffix(path, "/chat/completions")
		}
	}
	return true
}

func tokenTexts(prompt any) ([]string, bool) {
	list, ok := prompt.([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	if _, nested := list[0].([]any); !nested {
		list = []any{list}
	}
	texts := make([]string, len(list))
	for i, entry := range list {
		ids, ok := entry.([]any)
		if !ok {
			return nil, false
		}
		if texts[i], ok = decimal(ids); !ok {
			return nil, false
		}
	}
	return texts, true
}

func decimal(ids []any) (string, bool) {
	text := make([]byte, 0, 7*len(ids))
	for _, v := range ids {
		id, ok := tokenID(v)
		if !ok {
			return "", false
		}
		text = append(strconv.AppendUint(text, uint64(id), 10), ' ')
	}
	return string(text), true
}
