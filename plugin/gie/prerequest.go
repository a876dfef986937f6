package gie

import (
	"context"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// Names in requests and configurations.
const (
	prefillProfile = "prefill"
	fieldParams    = "kv_transfer_params"
)

// PreRequest decides for the endpoint that was chosen, and edits the body in
// place: the framework marshals the payload after this hook.
func (p *Plugin) PreRequest(_ context.Context, request *scheduling.LLMRequest, result *scheduling.SchedulingResult) {
	p.checkProducer.Do(p.requireProducer)
	body, skipped := payload(request)
	if skipped != skipNone {
		p.metrics.skip(skipped)
		return
	}
	target := p.target(result)
	if target.endpoint == nil {
		p.metrics.skip(skipEndpoint)
		return
	}
	p.observe(target.endpoint)
	p.decide(request, body, target)
}

func (p *Plugin) decide(request *scheduling.LLMRequest, body scheduling.PayloadMap, target target) {
	effective := editable(body) && !target.coordinated
	decision := p.policy.Decide(&plugin.Request{
		ID:         request.RequestId,
		Endpoint:   p.endpoints.name(target.endpoint.GetMetadata()),
		Unstreamed: !request.Body.Stream || !effective,
		Evidence:   p.evidence(target.endpoint, body),
	})
	edited, err := decision.Mutate(body)
	if target.coordinated && edited {
		p.metrics.fault(faultCoordinator)
		p.warnCoordinate.Do(p.warnCoordinator)
	}
	if err != nil || !effective {
		return // what comes of the request is not this decision's doing
	}
	p.remember(request, &decided{decision: decision, at: p.now(), streamed: request.Body.Stream, edited: edited})
}

func (p *Plugin) remember(request *scheduling.LLMRequest, d *decided) {
	if !p.inFlight.add(request, d) {
		p.metrics.fault(faultFull)
	}
}

// payload is the parsed body, or why there is none that could be edited.
func payload(request *scheduling.LLMRequest) (scheduling.PayloadMap, skip) {
	if request == nil || request.Body == nil {
		return nil, skipRequest
	}
	switch body := request.Body.Payload.(type) {
	case scheduling.PayloadMap:
		if body == nil {
			return nil, skipRequest
		}
		return body, skipNone
	case scheduling.RawPayload:
		return nil, skipRaw
	case scheduling.PayloadProto:
		return nil, skipProto
	default:
		return nil, skipRequest
	}
}

// editable says whether kv_transfer_params is of a type the policy edits.
func editable(body scheduling.PayloadMap) bool {
	switch body[fieldParams].(type) {
	case nil, map[string]any:
		return true
	default:
		return false
	}
}

// evidence of the request's cached prefix on the endpoint. Without any, the
// policy fails open and counts that.
func (p *Plugin) evidence(endpoint scheduling.Endpoint, body scheduling.PayloadMap) plugin.Evidence {
	value, found := endpoint.Get(evidence.PrefixTiersKey)
	if !found {
		return plugin.Evidence{}
	}
	tiers, ok := value.(*evidence.PrefixTiers)
	if !ok || tiers == nil {
		p.metrics.fault(faultEvidence)
		return plugin.Evidence{}
	}
	return plugin.Evidence{Prompts: tiers.Prompts, BlockSize: tiers.BlockSize, LoadTiers: plugin.LoadTiers(body)}
}

func (p *Plugin) requireProducer() {
	if p.producerExists() {
		return
	}
	p.metrics.fault(faultProducer)
	p.log.Error("No evidence will come: prefixMatchInfoProducerName names a plugin that is not configured",
		"prefixMatchInfoProducerName", p.policy.Config().PrefixMatchInfoProducerName)
}

func (p *Plugin) warnCoordinator() {
	p.log.Warn("Prefill and decode are separate: their coordinator replaces kv_transfer_params, so that decisions may never reach the prefill engine",
		"counter", "selective_kv_adapter_faults_total", "reason", faultNames[faultCoordinator])
}
