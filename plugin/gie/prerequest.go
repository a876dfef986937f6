package gie

import (
	"context"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/adapter"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// PreRequest decides for the endpoint that was chosen, and edits the body: the
// framework marshals the payload after this hook.
func (p *Plugin) PreRequest(ctx context.Context, request *scheduling.LLMRequest, result *scheduling.SchedulingResult) {
	p.checkProducer.Do(p.requireProducer)
	body, skipped := payload(request)
	if skipped != adapter.SkipNone {
		p.adapter.Skip(skipped)
		return
	}
	endpoint, coordinated := p.target(result)
	if endpoint == nil {
		p.adapter.Skip(adapter.SkipEndpoint)
		return
	}
	id := adapter.EndpointID(endpoint.GetMetadata().NamespacedName)
	if m := endpoint.GetMetrics(); m != nil {
		p.adapter.Routed(id, adapter.Load{Waiting: m.WaitingQueueSize, Running: m.RunningRequestsSize, At: m.UpdateTime})
	}
	p.adapter.Decide(ctx, &adapter.Request{
		Key:         request,
		ID:          request.RequestId,
		Endpoint:    id,
		Streamed:    request.Body.Stream,
		Coordinated: coordinated,
		Body:        body,
		Send:        func(edited map[string]any) { request.Body.Payload = scheduling.PayloadMap(edited) },
		Evidence:    p.evidence(endpoint),
	})
}

// payload is the parsed body, or why there is none that could be edited.
func payload(request *scheduling.LLMRequest) (scheduling.PayloadMap, adapter.Skip) {
	if request == nil || request.Body == nil {
		return nil, adapter.SkipRequest
	}
	switch body := request.Body.Payload.(type) {
	case scheduling.PayloadMap:
		if body == nil {
			return nil, adapter.SkipRequest
		}
		return body, adapter.SkipNone
	case scheduling.RawPayload:
		return nil, adapter.SkipRaw
	case scheduling.PayloadProto:
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

// evidence of the request's cached prefix on the endpoint. Without any, the
// policy fails open and counts that.
func (p *Plugin) evidence(endpoint scheduling.Endpoint) plugin.Evidence {
	value, found := endpoint.Get(evidence.PrefixTiersKey)
	if !found {
		return plugin.Evidence{}
	}
	tiers, ok := value.(*evidence.PrefixTiers)
	if !ok || tiers == nil {
		p.adapter.Fault(adapter.FaultEvidence)
		return plugin.Evidence{}
	}
	return plugin.Evidence{Prompts: tiers.Prompts, BlockSize: tiers.BlockSize, PromptTokens: tiers.PromptTokens}
}
