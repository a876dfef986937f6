package adapter

import (
	"context"
	"maps"

	"github.com/kvtuner/kvtuner/plugin"
)

// Names in requests and configurations.
const (
	prefillProfile = "prefill"
	fieldParams    = "kv_transfer_params"
)

// Request is one request that was routed to an endpoint.
type Request struct {
	// Key identifies the request until its response ends. It is comparable: a
	// pointer, for IDs are the client's and may repeat.
	Key any
	// ID of the request.
	ID       string
	Endpoint EndpointID
	// Streamed says that the client asked for a stream.
	Streamed bool
	// Coordinated is what Profile returned.
	Coordinated bool
	// Body is the parsed body.
	Body map[string]any
	// Send has the framework send another body instead. It is called only if the
	// decision changes something.
	Send func(body map[string]any)
	// Evidence of the cached prefix on the endpoint; its LoadTiers are read from
	// the body.
	Evidence plugin.Evidence
}

// Profile names the scheduling profile whose endpoint is decided for, given the
// primary one, to whose endpoint the EPP sends the request, and a function that
// says whether a profile ran and found an endpoint.
//
// That is the configured profile, by default "prefill"; where it did not run,
// the primary one. Coordinated says that the decision may never arrive: the
// engine decided for, or the one that fills the cache, is not the one the
// request is sent to. A coordinator there sends it on, as a request with
// kv_transfer_params of its own.
func (a *Adapter) Profile(primary string, ran func(profile string) bool) (profile string, coordinated bool) {
	elsewhere := primary != prefillProfile && ran(prefillProfile)
	wanted := a.profile
	if wanted == "" {
		wanted = prefillProfile
	}
	switch {
	case wanted == primary:
		return primary, elsewhere
	case ran(wanted):
		return wanted, true
	case a.profile != "":
		a.Fault(FaultProfile)
	}
	return primary, elsewhere
}

// Decide decides for a request and edits its body. The current span of ctx says
// what was decided.
func (a *Adapter) Decide(ctx context.Context, r *Request) {
	effective := editable(r.Body) && !r.Coordinated
	if len(r.Evidence.Prompts) > 0 {
		r.Evidence.LoadTiers = plugin.LoadTiers(r.Body)
	}
	decision := a.policy.Decide(&plugin.Request{
		ID:         r.ID,
		Endpoint:   a.endpoints.name(r.Endpoint),
		Unstreamed: !r.Streamed || !effective,
		Evidence:   r.Evidence,
	})
	describe(ctx, decision)
	edited, err := r.write(decision)
	if r.Coordinated && edited {
		a.Fault(FaultCoordinator)
		a.warnCoordinate.Do(a.warnCoordinator)
	}
	if err != nil || !effective { // what comes of the request is not this decision's doing
		a.policy.Abandon(decision)
		return
	}
	if !a.inFlight.add(r.Key, &decided{decision: decision, at: a.now(), streamed: r.Streamed, edited: edited}) {
		a.Fault(FaultFull)
		a.policy.Abandon(decision)
	}
}

// write writes the decision into a copy of the body, has it sent if that changes
// it, and says so. The body itself stays: an EPP goes on without a data producer
// that takes too long, and which may still be reading it then, and a map that is
// written and read at once ends the process.
func (r *Request) write(decision plugin.Decision) (edited bool, err error) {
	if changes, err := wouldChange(r.Body, decision); !changes {
		return false, err
	}
	body := maps.Clone(r.Body)
	if params, ok := body[fieldParams].(map[string]any); ok {
		body[fieldParams] = maps.Clone(params)
	}
	edited, err = decision.Mutate(body)
	r.Send(body)
	return edited, err
}

// wouldChange says what decision.Mutate would return, and changes nothing.
func wouldChange(body map[string]any, decision plugin.Decision) (bool, error) {
	params := body[fieldParams]
	if object, ok := params.(map[string]any); ok {
		params = maps.Clone(object)
	}
	return decision.Mutate(map[string]any{fieldParams: params})
}

// editable says whether there is a body whose kv_transfer_params are of a type
// the policy edits.
func editable(body map[string]any) bool {
	if body == nil {
		return false
	}
	switch body[fieldParams].(type) {
	case nil, map[string]any:
		return true
	default:
		return false
	}
}

func (a *Adapter) warnCoordinator() {
	a.log.Warn("Prefill and decode are separate: their coordinator replaces kv_transfer_params, so that decisions may never reach the prefill engine",
		"counter", "selective_kv_adapter_faults_total", "reason", faultNames[FaultCoordinator])
}
