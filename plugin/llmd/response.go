package llmd

import (
	"context"
	"strings"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
)

// ResponseHeader notes whether a good response has begun, and whether the
// request that it answers still said what the policy wrote.
func (p *Plugin) ResponseHeader(_ context.Context, request *scheduling.InferenceRequest, response *requestcontrol.Response, _ *datalayer.EndpointMetadata) {
	d := p.inFlight.get(request)
	if d == nil || response == nil {
		return
	}
	d.answered = succeeded(response.Headers)
	d.streamed = d.streamed && streams(response.Headers)
	if d.edited && replaced(request, d.decision) {
		p.metrics.fault(faultPlugin)
		p.inFlight.remove(request)
	}
}

// ResponseBody reports the first token of a streamed response, and the tokens of
// a finished one. The framework calls it for every piece of a stream, once
// otherwise, and at last with EndOfStream, after a broken response, too.
func (p *Plugin) ResponseBody(_ context.Context, request *scheduling.InferenceRequest, response *requestcontrol.Response, _ *datalayer.EndpointMetadata) {
	d := p.inFlight.get(request)
	if d == nil || response == nil {
		return
	}
	if d.answered && d.streamed && !d.began && isToken(response) {
		d.began = true
		p.policy.ObserveFirstToken(d.decision, p.now().Sub(d.at), computed(response.Usage))
	}
	if !response.EndOfStream {
		return
	}
	if d.answered && response.Usage.CompletionTokens > 0 {
		p.policy.ObserveOutput(d.decision, response.Usage.CompletionTokens)
	}
	p.inFlight.remove(request)
}

// isToken tells a piece of a stream from the end of one that brought nothing,
// such as a client that went away.
func isToken(response *requestcontrol.Response) bool {
	return !response.EndOfStream || response.Usage.CompletionTokens > 0
}

// computed is the number of prompt tokens the engine computed itself; negative
// is unknown.
func computed(usage requesthandling.Usage) int {
	if usage.PromptTokens <= 0 || usage.PromptTokenDetails == nil {
		return -1
	}
	return usage.PromptTokens - usage.PromptTokenDetails.CachedTokens
}

// succeeded is true for a response without a status, too: not every proxy sends
// it on.
func succeeded(headers map[string]string) bool {
	for _, name := range []string{":status", "status"} {
		if status, found := headers[name]; found {
			return strings.HasPrefix(status, "2")
		}
	}
	return true
}

func streams(headers map[string]string) bool {
	for name, value := range headers {
		if strings.EqualFold(name, "content-type") {
			return strings.Contains(strings.ToLower(value), "text/event-stream")
		}
	}
	return true
}

// replaced says whether the decision would have to be written again.
func replaced(request *scheduling.InferenceRequest, decision plugin.Decision) bool {
	body, skipped := payload(request)
	if skipped != skipNone || !editable(body) {
		return true
	}
	again, err := wouldChange(body, decision)
	return again || err != nil
}
