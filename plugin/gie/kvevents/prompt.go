package kvevents

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
)

// unchanged are fields of a request that the tokenizer takes as they are.
var (
	completionFields = []string{"model", "add_special_tokens"}
	chatFields       = []string{"model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template", "chat_template_kwargs"}
)

// altering are fields that change the tokens in ways the tokenizer cannot be
// asked for.
var altering = []string{"prompt_embeds", "truncate_prompt_tokens", "documents", "reasoning_effort", "mm_processor_kwargs"}

// maxPrompts is how many prompts of one request are looked up, each on every
// candidate. Empty ones cost a client two bytes.
const maxPrompts = 256

// refusal is why a request's tokens cannot be told.
type refusal outcome

func (r refusal) Error() string { return outcomeNames[r] }

// prompts returns the prompts of a request, or a refusal. server is where to
// tokenize, if the configuration names no place.
func (p *Producer) prompts(ctx context.Context, r *scheduling.LLMRequest, server string) ([]Prompt, error) {
	if r == nil || r.Body == nil {
		return nil, refusal(outcomeUnsupported)
	}
	lists, err := p.tokens(ctx, r, server)
	if err != nil {
		return nil, err
	}
	prompts := make([]Prompt, len(lists))
	total := 0
	for i, tokens := range lists {
		total += len(tokens)
		prompts[i] = Prompt{Tokens: tokens, Model: r.TargetModel, Salt: r.Body.CacheSalt()}
	}
	if total > p.config.MaxPromptTokens {
		return nil, refusal(outcomeTooLong)
	}
	return prompts, nil
}

func (p *Producer) tokens(ctx context.Context, r *scheduling.LLMRequest, server string) ([][]uint32, error) {
	if t := r.TokenizedPrompt; t != nil {
		if len(t.MultiModalFeatures) > 0 {
			return nil, refusal(outcomeMultimodal)
		}
		return [][]uint32{t.TokenIDs}, nil
	}
	body, ok := r.Body.Payload.(scheduling.PayloadMap)
	if !ok || present(body, altering) {
		return nil, refusal(outcomeUnsupported)
	}
	if messages, ok := body["messages"].([]any); ok {
		if !textOnly(messages) {
			return nil, refusal(outcomeMultimodal)
		}
		return p.tokenize(ctx, server, []map[string]any{pick(body, chatFields)})
	}
	switch prompt := body["prompt"].(type) {
	case string:
		return p.tokenizeTexts(ctx, server, body, []any{prompt})
	case []any:
		return p.promptList(ctx, server, body, prompt)
	default:
		return nil, refusal(outcomeUnsupported)
	}
}

// promptList takes a list: of token IDs, of lists of token IDs, or of texts.
func (p *Producer) promptList(ctx context.Context, server string, body map[string]any, list []any) ([][]uint32, error) {
	if len(list) == 0 {
		return nil, refusal(outcomeUnsupported)
	}
	switch list[0].(type) {
	case string:
		return p.tokenizeTexts(ctx, server, body, list)
	case []any:
		return p.tokenLists(list)
	default:
		return p.tokenLists([]any{list})
	}
}

func (p *Producer) tokenLists(lists []any) ([][]uint32, error) {
	if len(lists) > maxPrompts {
		return nil, refusal(outcomeTooLong)
	}
	out := make([][]uint32, len(lists))
	total := 0
	for i, entry := range lists {
		list, ok := entry.([]any)
		if !ok {
			return nil, refusal(outcomeUnsupported)
		}
		if total += len(list); total > p.config.MaxPromptTokens {
			return nil, refusal(outcomeTooLong)
		}
		out[i] = make([]uint32, len(list))
		for j, v := range list {
			if out[i][j], ok = tokenID(v); !ok {
				return nil, refusal(outcomeUnsupported)
			}
		}
	}
	return out, nil
}

// tokenID reads a number as decoded from JSON.
func tokenID(v any) (uint32, bool) {
	switch n := v.(type) {
	case float64:
		return uint32(n), n >= 0 && n <= math.MaxUint32 && n == math.Trunc(n)
	case json.Number:
		i, err := n.Int64()
		return uint32(i), err == nil && i >= 0 && i <= math.MaxUint32
	default:
		return 0, false
	}
}

func (p *Producer) tokenizeTexts(ctx context.Context, server string, body map[string]any, texts []any) ([][]uint32, error) {
	if len(texts) > maxPrompts {
		return nil, refusal(outcomeTooLong)
	}
	calls := make([]map[string]any, len(texts))
	for i, text := range texts {
		if _, ok := text.(string); !ok {
			return nil, refusal(outcomeUnsupported)
		}
		calls[i] = pick(body, completionFields)
		calls[i]["prompt"] = text
	}
	return p.tokenize(ctx, server, calls)
}

func (p *Producer) tokenize(ctx context.Context, server string, calls []map[string]any) ([][]uint32, error) {
	if p.tokenizer == nil {
		return nil, refusal(outcomeNoTokenizer)
	}
	lists := make([][]uint32, len(calls))
	for i, call := range calls {
		body, err := json.Marshal(call)
		if err != nil {
			return nil, refusal(outcomeUnsupported)
		}
		if lists[i], err = p.tokenizer.Tokenize(ctx, server, body); err != nil {
			return nil, tokenizerRefusal(err)
		}
	}
	return lists, nil
}

func tokenizerRefusal(err error) error {
	switch {
	case errors.Is(err, ErrTokenizerBusy):
		return refusal(outcomeTokenizerBusy)
	case errors.Is(err, context.DeadlineExceeded):
		return refusal(outcomeTokenizerTimeout)
	default:
		return refusal(outcomeTokenizerError)
	}
}

func pick(body map[string]any, names []string) map[string]any {
	picked := make(map[string]any, len(names)+1)
	for _, name := range names {
		if v, ok := body[name]; ok {
			picked[name] = v
		}
	}
	return picked
}

func present(body map[string]any, names []string) bool {
	for _, name := range names {
		if body[name] != nil {
			return true
		}
	}
	return false
}

// textOnly says that no message has a part other than text.
func textOnly(messages []any) bool {
	for _, m := range messages {
		message, ok := m.(map[string]any)
		if !ok {
			return false
		}
		parts, _ := message["content"].([]any)
		for _, part := range parts {
			if block, ok := part.(map[string]any); ok && block["type"] != "text" {
				return false
			}
		}
	}
	return true
}
