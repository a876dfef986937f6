package llmd

import (
	"context"
	"maps"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/attribute/prefix"

	"github.com/kvtuner/kvtuner/plugin"
)

// Names in requests and configurations.
const (
	prefillProfile = "prefill"
	fieldParams    = "kv_transfer_params"
)

// PreRequest decides for the endpoint that was chosen, and edits the body before
// the framework sends it. It never returns an error: that would fail the request.
func (p *Plugin) PreRequest(_ context.Context, request *scheduling.InferenceRequest, result *scheduling.SchedulingResult) error {
	body, skipped := payload(request)
	if skipped != skipNone {
		p.metrics.skip(skipped)
		return nil
	}
	target := p.target(result)
	if target.endpoint == nil {
		p.metrics.skip(skipEndpoint)
		return nil
	}
	p.observe(target.endpoint)
	p.decide(request, body, target)
	return nil
}

func (p *Plugin) decide(request *scheduling.InferenceRequest, body requesthandling.PayloadMap, target target) {
	effective := editable(body) && !target.coordinated
	decision := p.policy.Decide(&plugin.Request{
		ID:         request.RequestID,
		Endpoint:   p.endpoints.name(target.endpoint.GetMetadata()),
		Unstreamed: !request.Body.Stream || !effective,
		Evidence:   p.evidenceOn(target.endpoint, body),
	})
	edited, err := mutate(request.Body, body, decision)
	if target.coordinated && edited {
		p.metrics.fault(faultCoordinator)
		p.warnCoordinate.Do(p.warnCoordinator)
	}
	if err != nil || !effective {
		return // what comes of the request is not this decision's doing
	}
	p.remember(request, &decided{decision: decision, at: p.now(), streamed: request.Body.Stream, edited: edited})
}

// mutate writes the decision into the body, if that changes it: the framework
// marshals a body anew that it was told of, and sends others as they came.
func mutate(body *requesthandling.InferenceRequestBody, payload requesthandling.PayloadMap, decision plugin.Decision) (edited bool, err error) {
	if changes, err := wouldChange(payload, decision); !changes {
		return false, err
	}
	rewrite(body, payload, func(payload requesthandling.PayloadMap) { edited, err = decision.Mutate(payload) })
	return edited, err
}

// wouldChange says what decision.Mutate would return, and changes nothing.
func wouldChange(payload requesthandling.PayloadMap, decision plugin.Decision) (bool, error) {
	params := payload[fieldParams]
	if object, ok := params.(map[string]any); ok {
		params = maps.Clone(object)
	}
	return decision.Mutate(map[string]any{fieldParams: params})
}

func (p *Plugin) remember(request *scheduling.InferenceRequest, d *decided) {
	if !p.inFlight.add(request, d) {
		p.metrics.fault(faultFull)
	}
}

// payload is the parsed body, or why there is none that could be edited.
func payload(request *scheduling.InferenceRequest) (requesthandling.PayloadMap, skip) {
	if request == nil || request.Body == nil {
		return nil, skipRequest
	}
	switch body := request.Body.Payload.(type) {
	case requesthandling.PayloadMap:
		if body == nil {
			return nil, skipRequest
		}
		return body, skipNone
	case requesthandling.RawPayload:
		return nil, skipRaw
	case requesthandling.PayloadProto:
		return nil, skipProto
	default:
		return nil, skipRequest
	}
}

// editable says whether kv_transfer_params is of a type the policy edits.
func editable(body requesthandling.PayloadMap) bool {
	switch body[fieldParams].(type) {
	case nil, map[string]any:
		return true
	default:
		return false
	}
}

// evidenceOn is what is known of the request's cached prefix on the endpoint.
// Without any, the policy fails open and counts that. The producer adds up the
// prompts of a request, over all tiers and within each, so that they count as
// one.
func (p *Plugin) evidenceOn(endpoint scheduling.Endpoint, body requesthandling.PayloadMap) plugin.Evidence {
	value, found := attribute(endpoint, p.evidence)
	if !found {
		return plugin.Evidence{}
	}
	info, ok := value.(*prefix.PrefixCacheMatchInfo)
	if !ok || info == nil {
		p.metrics.fault(faultEvidence)
		return plugin.Evidence{}
	}
	return plugin.Evidence{
		Prompts:   []plugin.PrefixMatch{{CachedBlocks: info.CachedBlockCount(), ByTier: info.CachedBlocksByTier()}},
		BlockSize: info.BlockSizeTokens(),
		LoadTiers: plugin.LoadTiers(body),
	}
}

func (p *Plugin) warnCoordinator() {
	p.log.Warn("Prefill and decode are separate: their coordinator replaces kv_transfer_params, so that decisions may never reach the prefill engine",
		"counter", "selective_kv_adapter_faults_total", "reason", faultNames[faultCoordinator])
}
