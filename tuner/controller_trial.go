package tuner

import (
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// start a trial with the candidate's block; before are the incumbent's samples
// it is compared with first.
func (c *controller) start(s Sample, p proposal, before []Sample) action {
	t := &switchback{
		id: "t" + s.To.UTC().Format("20060102T150405Z"), proposal: p, started: s.To,
		before: total(before), sums: map[store.Arm]Signals{}, judged: map[store.Arm]int{},
	}
	t.blocks = []block{{logCosts: c.logCosts(before)}}
	t.sums[store.ArmBaseline] = t.before
	t.judged[store.ArmBaseline] = len(before)
	for _, b := range before {
		t.samples = append(t.samples, b.record(store.ArmBaseline, c.settings.Objective))
	}
	t.begin(true, s.To)
	c.trial = t

	kind, reason := store.KindTrial, fmt.Sprintf("trying %s instead of %s: %s", p.params, c.incumbent, p.why)
	if p.origin == fromShed {
		kind = store.KindShed
	}
	a := c.decide(kind, s, p.params, reason)
	a.decision.Trial = t.id
	a.decision.Evidence.Samples = t.samples
	a.decision.Evidence.Alternatives, a.decision.Evidence.Curves = p.alternatives, p.curves
	a.change = c.trialChange(s.To)
	return a
}

// trialChange is the document of the trial's present block. The candidate
// expires when its block should long be over.
func (c *controller) trialChange(now time.Time) *change {
	mode := store.AssignNone
	if c.trial.onCandidate {
		mode = store.AssignAll
	}
	return &change{baseline: c.incumbent, trial: &store.Trial{
		ID: c.trial.id, Candidate: c.trial.proposal.params, Assignment: store.Assignment{Mode: mode},
		StartedAt: c.trial.started, ExpiresAt: now.Add(c.settings.trialLease()),
	}}
}

func (c *controller) inTrial(o observation) action {
	t, s := c.trial, o.sample
	t.samples = append(t.samples, s.record(t.arm(), c.settings.Objective))
	if !o.open {
		return c.finish(s, aborted, nil, "the schedule's window has closed")
	}
	if s.State == Unknown || s.Plugin.State != OK {
		return c.trialBlind(s)
	}
	t.unknown = 0
	if why := c.guardTrial(s); why != "" {
		return c.finish(s, aborted, nil, why)
	}
	if len(c.collapse) >= shedAfter && t.proposal.origin != fromShed {
		return c.finish(s, aborted, nil, "the pool is collapsing under its restores, whichever arm runs")
	}
	if t.acked.IsZero() {
		return c.awaitAck(s)
	}
	c.judge(s)
	return c.afterSample(s)
}

func (c *controller) trialBlind(s Sample) action {
	c.trial.unknown++
	if c.trial.unknown < maxUnknown {
		return action{}
	}
	return c.finish(s, aborted, nil, "the trial cannot be watched: "+s.why())
}

// ackTimeout is how long every EPP replica has to show a new revision.
const ackTimeout = 2 * time.Minute

func (c *controller) awaitAck(s Sample) action {
	if s.Plugin.Revision >= c.revision {
		c.trial.acked = s.To
		return action{}
	}
	if s.To.Sub(c.trial.switched) < ackTimeout {
		return action{}
	}
	return c.finish(s, aborted, nil, fmt.Sprintf("an EPP replica still shows revision %d, not %d, after %v", s.Plugin.Revision, c.revision, ackTimeout))
}

// guardTrial says why the trial must end now; empty means it may go on.
func (c *controller) guardTrial(s Sample) string {
	t := c.trial
	if !t.onCandidate || s.State != OK {
		return ""
	}
	if why := c.settings.Guard.breach(s.Signals, t.before); why != "" {
		return why
	}
	cost, ok := c.settings.Objective.Cost(s.Signals)
	if !ok || t.proposal.origin == fromShed && !c.beyondWashout(s) {
		return ""
	}
	reference := t.blocks[0].logCosts
	if !c.settings.Guard.regressed(math.Log(cost), mean(reference), longRunVariance(reference)) {
		t.regressed = 0
		return ""
	}
	if t.regressed++; t.regressed < 2 {
		return ""
	}
	return fmt.Sprintf("the cost of a request rose more than %.0f%% above the incumbent's in two samples in a row (guard.maxRegression)", 100*c.settings.Guard.MaxRegression)
}

func (c *controller) beyondWashout(s Sample) bool {
	t := c.trial
	return !t.acked.IsZero() && !s.From.Before(t.acked.Add(c.settings.Trial.Washout))
}

func (c *controller) judge(s Sample) {
	if s.State != OK || !c.beyondWashout(s) {
		return
	}
	if cost, ok := c.settings.Objective.Cost(s.Signals); ok {
		c.trial.judge(s, math.Log(cost))
	}
}

// afterSample ends the trial if it is decided, or switches arms if its block is
// over.
func (c *controller) afterSample(s Sample) action {
	t := c.trial
	v, i := t.look(c.settings.Trial, c.logCosts(c.history))
	done, overdue := t.blockDone(s.To, c.settings.Trial)
	if v == undecided && done && t.proposal.origin == fromShed && i != nil && i.Estimate <= -c.settings.Trial.MinEffect {
		v = better
	}
	switch {
	case v != undecided:
		return c.finish(s, v, i, t.describe(i))
	case overdue:
		return c.finish(s, aborted, i, "too few samples for a block in twice its time")
	case !done:
		return action{}
	case !t.onCandidate && t.candidateBlocks() >= c.settings.Trial.MaxBlocks:
		return c.finish(s, noDifference, i, t.describe(i)+"; the blocks are used up")
	}
	t.begin(!t.onCandidate, s.To)
	return action{change: c.trialChange(s.To)}
}

// finish ends the trial: the candidate becomes the incumbent, or is gone.
func (c *controller) finish(s Sample, v verdict, i *store.Interval, why string) action {
	t := c.trial
	former := c.incumbent
	to, kind := c.incumbent, store.KindKeep
	switch v {
	case better:
		to, kind = t.proposal.params, store.KindMove
	case aborted:
		kind = store.KindAbort
	}
	a := c.decide(kind, s, to, fmt.Sprintf("%s is %s than %s: %s", t.proposal.params, v, c.incumbent, why))
	if v == aborted || v == noDifference {
		a.decision.Reason = fmt.Sprintf("trial of %s against %s, %s: %s", t.proposal.params, c.incumbent, v, why)
	}
	a.decision.Trial = t.id
	a.decision.Evidence = t.evidence(v, i, former, c.settings.Objective, s.Queries)
	a.change = &change{baseline: to}
	c.trial = nil
	c.conclude(s, t, v)
	return a
}

// conclude updates what the search knows.
func (c *controller) conclude(s Sample, t *switchback, v verdict) {
	switch v {
	case better:
		c.moved(s, t)
		return
	case aborted:
		c.aborts++
		c.cooldown = s.To.Add(backOff(c.settings.Guard.Cooldown, c.settings.Guard.MaxCooldown, c.aborts))
	}
	if t.proposal.origin == fromShed {
		c.sheds++
		c.shedAt = s.To.Add(backOff(c.settings.Guard.Cooldown, c.settings.Guard.MaxCooldown, c.sheds))
	}
	c.climber.rejected(t.proposal, c.settings.Search, s.To)
	if t.onCandidate {
		c.history = nil
	}
}

// moved makes the candidate the incumbent, on probation.
func (c *controller) moved(s Sample, t *switchback) {
	var before []float64
	for _, b := range t.blocks {
		if !b.candidate {
			before = append(before, b.logCosts...)
		}
	}
	c.probation = &probation{
		former: c.incumbent, logCost: mean(before), variance: pooledVariance(nil, t.blocks),
		until: s.To.Add(2 * c.settings.Trial.Block),
	}
	c.lastGood, c.incumbent = c.incumbent, t.proposal.params
	c.climber.succeeded(t.proposal, c.settings.Search, s.To)
	c.aborts, c.sheds = 0, 0
	c.history, c.change = nil, cusum{}
	if v := c.view(s); v.model != nil {
		if sig, ok := sign(t.sums[store.ArmCandidate], v.model); ok {
			c.memory = c.memory.remember(sig, c.incumbent, s.To)
		}
	}
}

// onProbation rolls a move back when the new incumbent costs more than the old
// one did.
func (c *controller) onProbation(s Sample, logCost float64) (action, bool) {
	p := c.probation
	if p == nil {
		return action{}, false
	}
	p.samples = append(p.samples, logCost)
	n := float64(len(p.samples))
	excess := mean(p.samples) - p.logCost
	if len(p.samples) >= minBlockSamples && excess > c.settings.Trial.MinEffect+3*math.Sqrt(p.variance/n) {
		a := c.decide(store.KindRollback, s, p.former, fmt.Sprintf("after the move to %s a request costs %.1f%% more than under %s before it: rolled back", c.incumbent, 100*math.Expm1(excess), p.former))
		c.climber.rejected(proposal{params: c.incumbent, origin: fromModel}, c.settings.Search, s.To)
		c.incumbent, c.probation, c.history = p.former, nil, nil
		c.cooldown = s.To.Add(c.settings.Guard.Cooldown)
		a.change = &change{baseline: c.incumbent}
		return a, true
	}
	if s.To.After(p.until) {
		c.probation, c.lastGood = nil, c.incumbent
	}
	return action{}, false
}

// watchCollapse counts the samples in a row that show a collapse.
func (c *controller) watchCollapse(s Sample) {
	switch {
	case s.State == Unknown || s.Plugin.State != OK:
	case s.State == OK && c.settings.Guard.collapsed(s):
		c.collapse = append(c.collapse, s)
	default:
		c.collapse = nil
	}
}

// shedAfter is how many samples in a row make a collapse.
const shedAfter = 2

// shed answers a collapse at once: stop restoring, compare afterwards. It is the
// one step that may be longer than search.maxStep, and it does not wait for a
// cool-down or the washout; a shed that did not help is not repeated for a while.
func (c *controller) shed(o observation) (action, bool) {
	s := o.sample
	to, _ := c.settings.Bounds.Clamp(store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: c.incumbent.MaxWaitingRequests})
	if len(c.collapse) < shedAfter || !o.open || s.To.Before(c.shedAt) || to == c.incumbent || c.settings.Mode == Observe {
		return action{}, false
	}
	p := proposal{params: to, origin: fromShed, why: fmt.Sprintf("%.0f of %.0f requests in flight wait and the SLO is broken: restores are stopped first", s.Signals.Waiting(), s.Signals.InFlight())}
	before := c.collapse[len(c.collapse)-shedAfter:]
	c.collapse = nil
	return c.start(s, p, before), true
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
