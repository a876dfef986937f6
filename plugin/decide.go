package plugin

import "github.com/kvtuner/kvtuner/store"

// Decide answers for one request and counts the answer. It takes no lock and
// does not allocate.
func (p *Policy) Decide(r *Request) Decision {
	now := p.elapsed()
	s := p.inForce.Load()
	e := p.endpoints.get(r.Endpoint)
	arm := s.arm(e, r.Endpoint, now)
	tokens, held, known := r.Evidence.tokens()

	d := Decision{
		Reason:         p.reason(r, s, arm, e, tokens, known, now),
		DisableOffload: p.config.OffloadPolicy == Disable,
		Arm:            armNames[arm],
		Revision:       s.revision,
		ReusableTokens: tokens,
		Evidence:       known == ReasonReusable,
		metrics:        p.metrics,
	}
	d.Action = d.Reason.Action()
	if d.Evidence && r.Evidence.PromptTokens > 0 {
		d.computes = 1 + max(r.Evidence.PromptTokens-held, 0)
		if d.Action == Load {
			d.computes = max(d.computes-tokens, 1)
		}
	}
	if d.Action == Load && d.Evidence && !r.Unstreamed && e != nil && e.restores != nil && s.rule != nil {
		d.restores, d.at = e.restores, now
		e.restores.pending.start(now)
	}
	p.metrics.count(arm, &d, !r.Unstreamed)
	return d
}

// reason is the law of the policy. known is what came of reading the evidence.
func (p *Policy) reason(r *Request, s *snapshot, arm int, e *endpoint, tokens int, known Reason, now int64) Reason {
	in := s.params[arm]
	switch {
	case p.config.LoadPolicy == Preserve:
		return ReasonPreserved
	case p.config.LoadPolicy == Disable:
		return ReasonDisabled
	case known != ReasonReusable:
		return known
	case store.Tokens(tokens) < in.MinExternalReusableTokens:
		if p.probes(r.ID, tokens, in.MaxWaitingRequests, e, now) {
			return ReasonProbeBelowMinimum
		}
		return ReasonBelowMinimum
	case p.gated(in.MaxWaitingRequests, e, now):
		if p.probes(r.ID, tokens, in.MaxWaitingRequests, e, now) {
			return ReasonProbeQueueGate
		}
		return ReasonQueueGate
	case in.LoadPolicy == store.Adaptive && p.dearer(s.rule, e, tokens, now):
		if p.probes(r.ID, tokens, in.MaxWaitingRequests, e, now) {
			return ReasonProbeRestoreDearer
		}
		return ReasonRestoreDearer
	default:
		return ReasonReusable
	}
}

// gated says whether the gate vetoes a restore. Without a limit, an endpoint or
// a recent sample it does not.
func (p *Policy) gated(limit int, e *endpoint, now int64) bool {
	return limit != store.NoGate && e != nil && e.gate.fresh(p.decay, now) && e.gate.closedAt(limit)
}

// probes says whether a request that is to be stopped is let through instead,
// because a gate that stops every restore ends the evidence it needs. A request
// with nothing to restore would bring none. Under a limit the queue must be
// known, and not be far above the limit.
func (p *Policy) probes(id string, tokens, limit int, e *endpoint, now int64) bool {
	if p.probeBelow == 0 || id == "" || tokens == 0 {
		return false
	}
	if limit != store.NoGate && !p.calm(limit, e, now) {
		return false
	}
	return draw(id) < p.probeBelow
}

func (p *Policy) calm(limit int, e *endpoint, now int64) bool {
	return e != nil && e.gate.fresh(p.decay, now) &&
		e.gate.average() <= p.config.ProbeWaitingFactor*float64(limit)
}
