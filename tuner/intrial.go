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
		id: "t" + s.To.UTC().Format("20060102T150405Z"), proposal: p, started: s.To, before: total(before),
		sums: map[store.Arm]Signals{}, judged: map[store.Arm]int{}, fullBlock: c.settings.blockSamples(),
	}
	costs := c.logCosts(before)
	if p.origin == fromShed {
		costs = c.collapseCosts(before)
	}
	t.blocks = []block{{logCosts: costs}}
	t.sums[store.ArmBaseline] = t.before
	t.judged[store.ArmBaseline] = len(costs)
	for _, b := range before {
		t.show(b.record(store.ArmBaseline, c.settings.Objective))
	}
	c.trial = t
	c.switchArm(s, true)

	kind := store.KindTrial
	if p.origin == fromShed {
		kind = store.KindShed
	}
	a := c.decide(kind, s, p.params, fmt.Sprintf("trying %s instead of %s: %s", p.params, c.incumbent, p.why))
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
	t.show(s.record(t.arm(), c.settings.Objective))
	if !o.open {
		return c.finish(s, cancelled, nil, "the schedule's window has closed")
	}
	if !s.To.Before(t.switched.Add(c.settings.trialLease())) {
		return c.finish(s, cancelled, nil, "the block expired before it was over")
	}
	if s.why() != "" {
		return c.trialBlind(s)
	}
	if c.effect.why != "" {
		return c.finish(s, cancelled, nil, c.effect.why)
	}
	t.unknown = 0
	if why := c.guardTrial(s); why != "" {
		return c.finish(s, aborted, nil, why)
	}
	if s.State == OK && c.settings.has(ChangeDetection) && t.proposal.origin != fromShed && t.workloadMoved(s.Signals, float64(c.settings.Trial.MinRequests)) {
		return c.outdated(s)
	}
	if !c.trialInForce(s) && !t.acked.IsZero() { // a replica has restarted
		t.acked, t.switched = time.Time{}, s.To
	}
	if t.acked.IsZero() {
		return c.awaitAck(s)
	}
	if a, ended := c.incumbentCollapsed(s); ended {
		return a
	}
	c.judge(s)
	return c.afterSample(s)
}

// outdated ends a trial under which the workload has changed, and starts the search
// over at once: nothing it knew is about these requests.
func (c *controller) outdated(s Sample) action {
	cooldown := c.cooldown
	a := c.finish(s, cancelled, nil, "the workload has changed: longer or shorter prompts")
	c.cooldown = cooldown
	c.climber.wake(c.settings.Search, s.To)
	c.climber.Unproven = true
	return a
}

// incumbentCollapsed ends a trial whose incumbent collapses in its own block, so
// that the next step can shed.
func (c *controller) incumbentCollapsed(s Sample) (action, bool) {
	if c.trial.onCandidate || !c.beyondWashout(s) {
		return action{}, false
	}
	c.watchCollapse(s)
	if len(c.collapse) < shedAfter {
		return action{}, false
	}
	collapse := c.collapse
	a := c.finish(s, cancelled, nil, "the pool is collapsing under the incumbent")
	c.collapse = collapse
	return a, true
}

func (c *controller) trialBlind(s Sample) action {
	c.trial.unknown++
	if c.trial.unknown < maxUnknown {
		return action{}
	}
	return c.finish(s, cancelled, nil, "the trial cannot be watched: "+s.why())
}

func (c *controller) awaitAck(s Sample) action {
	if c.trialInForce(s) {
		c.trial.acked = s.To
		return action{}
	}
	if s.To.Sub(c.trial.switched) < ackTimeout {
		return action{}
	}
	if c.inForce(s.Plugin) {
		return c.finish(s, cancelled, nil, "an EPP replica has dropped the candidate as expired: is its clock ahead of the tuner's?")
	}
	return c.finish(s, cancelled, nil, unacknowledged(s, c.revision))
}

// trialInForce tells whether every replica runs the present block: it shows the
// block's revision, and has not dropped the candidate by its own clock.
func (c *controller) trialInForce(s Sample) bool {
	return c.inForce(s.Plugin) && !(c.trial.onCandidate && s.Plugin.Expired)
}

// guardTrial says why the candidate must go now; empty means it may stay.
func (c *controller) guardTrial(s Sample) string {
	t := c.trial
	if !t.onCandidate || s.State != OK {
		return ""
	}
	if why := c.settings.Guard.erring(s.Signals, t.before); why != "" {
		return why
	}
	if t.proposal.origin == fromShed && !c.beyondWashout(s) {
		return "" // what the collapse has left is slow, whoever works it off
	}
	if why := c.settings.Guard.breach(s.Signals, t.before); why != "" {
		return why
	}
	cost, ok := c.settings.Objective.Cost(s.Signals)
	reference := t.blocks[0].logCosts
	if !ok || len(reference) == 0 {
		return ""
	}
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
	return !t.acked.IsZero() && !s.From.Before(t.acked.Add(t.washout))
}

// switchArm begins a block after the sample s of the other arm.
func (c *controller) switchArm(s Sample, candidate bool) {
	c.trial.begin(candidate, s.To)
	c.trial.washout = min(max(c.settings.Trial.Washout, backlogLives*s.deferral()), c.settings.Trial.Block)
}

// backlogLives is how many times the mean wait of a restore its backlog lives: what
// has just joined a queue waits for all of it, and half of that is the mean.
const backlogLives = 2

func (c *controller) judge(s Sample) {
	if s.State != OK || !c.beyondWashout(s) {
		return
	}
	if cost, ok := c.settings.Objective.Cost(s.Signals); ok {
		c.trial.judge(s, math.Log(cost))
	}
}

// afterSample ends the trial if it is decided, or switches arms if its block is
// over. A shed that seems to help stays: going back would be going back into the
// collapse.
func (c *controller) afterSample(s Sample) action {
	t := c.trial
	c.refreshPrior(s)
	v, i := t.look(c.settings.Trial, c.logCosts(c.history))
	done, overdue := t.blockDone(s.To, c.settings.Trial)
	if v == undecided && done && t.proposal.origin == fromShed && i != nil && i.Estimate <= -c.settings.Trial.MinEffect {
		v = better
	}
	switch {
	case v != undecided:
		return c.finish(s, v, i, t.describe(i))
	case overdue:
		return c.finish(s, cancelled, i, "too few samples for a block in twice its time")
	case !done || c.settings.has(Haste) && t.prolong(c.settings.Trial, c.logCosts(c.history)):
		return action{}
	case !t.onCandidate && t.candidateBlocks() >= c.settings.Trial.MaxBlocks:
		return c.finish(s, noDifference, i, t.describe(i)+"; the blocks are used up")
	}
	c.expose(s.To)
	c.switchArm(s, !t.onCandidate)
	return action{change: c.trialChange(s.To)}
}

// refreshPrior takes the prediction from the curves as they are now: the requests
// go on showing what restoring costs while the trial runs, and two minutes after a
// change they had shown little.
func (c *controller) refreshPrior(s Sample) {
	t := c.trial
	to := t.proposal.params
	if t.proposal.origin != fromModel && t.proposal.origin != fromHome || to.MaxWaitingRequests != c.incumbent.MaxWaitingRequests {
		return
	}
	if m, ok := fitCurves(c.log, s.To, c.settings.Search); ok {
		t.proposal.prior = m.predict(c.incumbent, to).prior()
	}
}

// expose books the time the candidate has just been in force.
func (c *controller) expose(now time.Time) {
	if c.trial.onCandidate {
		c.exposed = c.exposed.add(c.trial.since, now)
	}
}

// abandon a trial whose block could not be published in time.
func (c *controller) abandon(now time.Time) action {
	return c.finish(Sample{From: now, To: now, State: Unknown}, cancelled, nil, "a block could not be published in time")
}

// leaveTrial ends a trial without a verdict.
func (c *controller) leaveTrial(now time.Time) {
	if c.trial != nil {
		c.expose(now)
		c.trial = nil
	}
}

// finish ends the trial: the candidate becomes the incumbent, or is gone.
func (c *controller) finish(s Sample, v verdict, i *store.Interval, why string) action {
	t, former := c.trial, c.incumbent
	to, kind, reason := former, store.KindKeep, fmt.Sprintf("trial of %s against %s, %s: %s", t.proposal.params, former, v, why)
	switch v {
	case better:
		to, kind, reason = t.proposal.params, store.KindMove, fmt.Sprintf("%s is better than %s: %s", t.proposal.params, former, why)
	case noWorse:
		to, kind, reason = t.proposal.params, store.KindRecover, fmt.Sprintf("%s is no worse than %s and nearer the initial parameters: %s", t.proposal.params, former, why)
	case aborted, cancelled:
		kind = store.KindAbort
	}
	a := c.decide(kind, s, to, reason)
	a.decision.Trial = t.id
	a.decision.Evidence = t.evidence(v, i, former, c.settings.Objective, s.Queries)
	a.change = &change{baseline: to}
	c.leaveTrial(s.To)
	c.conclude(s, t, v)
	return a
}

// conclude updates what the search knows. Only what a candidate did itself
// counts against it; what cancelled a trial does not.
func (c *controller) conclude(s Sample, t *switchback, v verdict) {
	c.collapse = nil
	switch v {
	case better, noWorse:
		c.moved(s, t)
		return
	case cancelled:
		c.cooldown = later(c.cooldown, s.To.Add(c.settings.Trial.Block))
	case aborted:
		c.aborts++
		wait := backOff(c.settings.Guard.Cooldown, c.settings.Guard.MaxCooldown, c.aborts)
		c.cooldown = s.To.Add(c.settings.Trial.Block)
		c.climber.rejected(t.proposal, c.settings.Search, s.To, true)
		c.climber.ExploreAt = later(c.climber.ExploreAt, s.To.Add(wait))
	default:
		c.aborts = 0
		c.climber.rejected(t.proposal, c.settings.Search, s.To, false)
	}
	if t.proposal.origin == fromShed {
		c.sheds++
		c.shedAt = s.To.Add(backOff(c.settings.Guard.Cooldown, c.settings.Guard.MaxCooldown, c.sheds))
	}
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
		former: c.incumbent, before: before, variance: pooledVariance(before, t.blocks),
		until: 2 * c.settings.blockSamples(), requests: t.sums[store.ArmCandidate],
	}
	c.incumbent = t.proposal.params
	c.climber.succeeded(t.proposal, c.settings.Search, s.To)
	c.aborts, c.sheds = 0, 0
	c.forgetSamples()
	v := c.view(s)
	v.recent.Signals = t.sums[store.ArmCandidate]
	c.learn(v, c.incumbent, s.To)
}
