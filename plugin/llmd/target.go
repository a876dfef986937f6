package llmd

import "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"

// target is the endpoint that a request is decided for; nil is none.
type target struct {
	endpoint scheduling.Endpoint
	// coordinated says that prefill is done elsewhere than where the EPP sends
	// the request: a coordinator there sends it on, as a request of its own.
	coordinated bool
}

func (p *Plugin) target(result *scheduling.SchedulingResult) target {
	if result == nil {
		return target{}
	}
	prefill := first(result.ProfileResults[prefillProfile])
	coordinated := prefill != nil && result.PrimaryProfileName != prefillProfile
	if chosen := p.chosen(result, prefill); chosen != nil {
		elsewhere := p.profile != "" && p.profile != result.PrimaryProfileName
		return target{chosen, coordinated || elsewhere}
	}
	return target{first(result.ProfileResults[result.PrimaryProfileName]), coordinated}
}

// chosen is the endpoint of the profile to decide for, nil if it did not run.
func (p *Plugin) chosen(result *scheduling.SchedulingResult, prefill scheduling.Endpoint) scheduling.Endpoint {
	if p.profile == "" {
		return prefill
	}
	named := first(result.ProfileResults[p.profile])
	if named == nil {
		p.metrics.fault(faultProfile)
	}
	return named
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
