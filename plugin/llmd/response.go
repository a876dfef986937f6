package llmd

import (
	"context"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// ResponseHeader reports that a response has begun.
func (p *Plugin) ResponseHeader(_ context.Context, request *scheduling.InferenceRequest, response *requestcontrol.Response, _ *datalayer.EndpointMetadata) {
	if response == nil {
		return
	}
	body, _ := payload(request)
	p.adapter.ResponseHeader(request, response.Headers, body)
}

// ResponseBody reports a piece of a response. The framework calls it for every
// piece of a stream, once otherwise, and at last with EndOfStream, after a broken
// response, too.
func (p *Plugin) ResponseBody(_ context.Context, request *scheduling.InferenceRequest, response *requestcontrol.Response, _ *datalayer.EndpointMetadata) {
	if response == nil {
		return
	}
	piece := adapter.Piece{
		End:              response.EndOfStream,
		PromptTokens:     response.Usage.PromptTokens,
		CompletionTokens: response.Usage.CompletionTokens,
		CachedTokens:     adapter.Unknown,
	}
	if details := response.Usage.PromptTokenDetails; details != nil {
		piece.CachedTokens = details.CachedTokens
	}
	p.adapter.ResponseBody(request, piece)
}
