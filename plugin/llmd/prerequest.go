package llmd

import (
	"context"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/attribute/prefix"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// PreRequest decides for the endpoint that was chosen, and edits the body before
// the framework sends it. It never returns an error: that would fail the request.
func (p *Plugin) PreRequest(ctx context.Context, request *scheduling.InferenceRequest, result *scheduling.SchedulingResult) error {
	body, skipped := payload(request)
	if skipped != adapter.SkipNone {
		p.adapter.Skip(skipped)
		return nil
	}
	endpoint, coordinated := p.target(result)
	if endpoint == nil {
		p.adapter.Skip(adapter.SkipEndpoint)
		return nil
	}
	id := adapter.EndpointID(endpoint.GetMetadata().ID)
	if m := endpoint.GetMetrics(); m != nil {
		p.adapter.Routed(id, adapter.Load{Waiting: m.WaitingQueueSize, Running: m.RunningRequestsSize, At: m.UpdateTime})
	}
	p.adapter.Decide(ctx, &adapter.Request{
		Key:         request,
		ID:          request.RequestID,
		Endpoint:    id,
		Streamed:    request.Body.Stream,
		Coordinated: coordinated,
		Body:        body,
		Send:        func(edited map[string]any) { send(request.Body, edited) },
		Evidence:    p.evidenceOn(endpoint),
	})
	return nil
}

// payload is the parsed body, or why there is none that could be edited.
func payload(request *scheduling.InferenceRequest) (requesthandling.PayloadMap, adapter.Skip) {
	if request == nil || request.Body == nil {
		return nil, adapter.SkipRequest
	}
	switch body := request.Body.Payload.(type) {
	case requesthandling.PayloadMap:
		if body == nil {
			return nil, adapter.SkipRequest
		}
		return body, adapter.SkipNone
	case requesthandling.RawPayload:
		return nil, adapter.SkipRaw
	case requesthandling.PayloadProto:
		return nil, adapter.SkipProto
	default:
		return nil, adapter.SkipRequest
	}
}

// target is the endpoint that a request is decided for, nil if there is none.
func (p *Plugin) target(result *scheduling.SchedulingResult) (endpoint scheduling.Endpoint, coordinated bool) {
	if result == nil {
		return nil, false
	}
	profile, coordinated := p.adapter.Profile(result.PrimaryProfileName, func(profile string) bool {
		return first(result.ProfileResults[profile]) != nil
	})
	return first(result.ProfileResults[profile]), coordinated
}

// first is the endpoint a profile would send to; nil if it has none that is
// known.
func first(result *scheduling.ProfileRunResult) scheduling.Endpoint {
	if result == nil || len(result.TargetEndpoints) == 0 {
		return nil
	}
	endpoint := result.TargetEndpoints[0]
	if endpoint == nil || endpoint.GetMetadata() == nil {
		return nil
	}
	return endpoint
}

// evidenceOn is what is known of the request's cached prefix on the endpoint.
// Without any, the policy fails open and counts that. The producer adds up the
// prompts of a request, over all tiers and within each, so that they count as
// one.
func (p *Plugin) evidenceOn(endpoint scheduling.Endpoint) plugin.Evidence {
	value, found := attribute(endpoint, p.evidence)
	if !found {
		return plugin.Evidence{}
	}
	info, ok := value.(*prefix.PrefixCacheMatchInfo)
	if !ok || info == nil {
		p.adapter.Fault(adapter.FaultEvidence)
		return plugin.Evidence{}
	}
	return plugin.Evidence{
		Prompts:   []plugin.PrefixMatch{{CachedBlocks: info.CachedBlockCount(), ByTier: info.CachedBlocksByTier()}},
		BlockSize: info.BlockSizeTokens(),
		// Of whole blocks; the last, broken one is neglected.
		PromptTokens: info.TotalBlocks() * info.BlockSizeTokens(),
	}
}
