package tuner

import (
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// controller is the pure core of the loop: observation in, action out. It does
// no I/O and reads no clock.
type controller struct {
	settings Settings
	search   searcher

	incumbent store.Params
	climber   climber
	memory    memory

	// revision of the document; parameters is the first one with the parameters in
	// force, whose acknowledgement is awaited, since awaited; settled is when they
	// have been in force for long enough for the storage backlog of their
	// predecessor to be gone, zero before the acknowledgement.
	revision   int64
	parameters int64
	awaited    time.Time
	settled    time.Time

	trial     *switchback
	probation *probation
	history   []Sample // the incumbent's, contiguous, since settled
	log       []evidence
	change    cusum
	exposed   exposure
	effect    effect

	collapse []Sample // the incumbent's, in a row
	shedAt   time.Time
	sheds    int
	cooldown time.Time
	aborts   int

	orders orders

	unknown    int    // samples in a row
	holding    string // for this reason, recorded at heldAt
	heldAt     time.Time
	suggested  map[store.Params]time.Time
	lastSample Sample
}

// observation is one step's input.
type observation struct {
	sample Sample
	// open tells whether the schedule allows tuning; room, whether it still will
	// when a pair of blocks begun now ends.
	open, room bool
}

// action is what a step asks of the shell: publish a change, record a decision,
// or both, or nothing.
type action struct {
	change   *change
	decision *store.Decision
}

// change is the next document, less its revision and times.
type change struct {
	baseline store.Params
	trial    *store.Trial
}

// historyLength bounds the incumbent's samples: 20 minutes at 15 s.
const historyLength = 80

func newController(s Settings, incumbent store.Params, now time.Time) *controller {
	return &controller{
		settings: s, search: searcher{settings: s, ladder: newLadder(s.Bounds, s.Search.Adaptive)},
		incumbent: incumbent, climber: newClimber(s.Search, now), awaited: now,
		suggested: map[store.Params]time.Time{},
	}
}

// next takes one step. The order of its checks is the order of what matters:
// see enough, do no harm, finish what is running, then look for better.
func (c *controller) next(o observation) action {
	s := o.sample
	c.note(s)
	if a, acted := c.overdue(s); acted {
		return a
	}
	if c.trial != nil {
		return c.inTrial(o)
	}
	if why := c.blindness(s); why != "" {
		return c.blind(s, why)
	}
	if a, acted := c.sees(s); acted {
		return a
	}
	if !c.settle(s) {
		return action{}
	}
	if c.orders.Pause != nil {
		return c.watchPaused(s)
	}
	c.watchCollapse(s)
	if a, acted := c.shed(o); acted {
		return a
	}
	cost, ok := c.settings.Objective.Cost(s.Signals)
	if s.State == Idle || !ok {
		return action{}
	}
	c.remember(s)
	if a, acted := c.onProbation(s, math.Log(cost)); acted {
		return a
	}
	if !o.open {
		return action{}
	}
	if a, woken := c.notices(s, math.Log(cost)); woken {
		return a
	}
	if !o.room || s.To.Before(c.cooldown) || len(c.history) < minBlockSamples {
		return action{}
	}
	return c.propose(s)
}

// notices that the cost or the workload has changed, and starts the search over.
func (c *controller) notices(s Sample, logCost float64) (action, bool) {
	costMoved := c.settings.has(ChangeDetection) && c.change.add(logCost)
	workloadMoved := c.workloadMoved()
	switch {
	case !costMoved && !workloadMoved:
		return action{}, false
	case c.wasBestBefore(s):
		c.climber.Known = nil
		return action{}, false
	case workloadMoved:
		return c.wake(s, "the workload has changed: longer or shorter prompts; the search starts over"), true
	}
	return c.wake(s, "the incumbent's cost has left its band: the workload or the fleet has changed, and the search starts over"), true
}

// wasBestBefore tells that the workload in view is one for which the search has
// already found the incumbent best: then there is nothing new to search for.
func (c *controller) wasBestBefore(s Sample) bool {
	m, ok := fitCurves(c.log, s.To, c.settings.Search)
	if !ok || !c.settings.has(Curves) {
		return false
	}
	// The last block alone: what came before it may be the workload that has gone.
	sig, ok := signatureOf(total(c.recent(c.settings.blockSamples())), &m)
	if !ok {
		return false
	}
	recalled := c.recall(sig)
	return recalled != nil && *recalled == c.incumbent
}

// note keeps the evidence behind the cost curves, whichever arm is in force.
func (c *controller) note(s Sample) {
	c.lastSample = s
	if s.State != OK || s.Plugin.State != OK {
		return
	}
	c.log = append(c.log, evidence{at: s.To, points: s.Plugin.Curve, signals: s.Signals})
	oldest := s.To.Add(-maxReach * c.settings.Search.Evidence)
	for len(c.log) > 0 && (c.log[0].at.Before(oldest) || c.log[0].at.After(s.To)) {
		c.log = c.log[1:]
	}
	c.effect.watch(s)
}

// blindness says why nothing can be decided on a sample; empty means it can.
func (c *controller) blindness(s Sample) string {
	switch {
	case s.why() != "":
		return s.why()
	case c.effect.why != "":
		return c.effect.why
	case c.settled.IsZero() && !c.inForce(s.Plugin) && s.To.Sub(c.awaited) > ackTimeout:
		return unacknowledged(s, c.revision)
	case c.incumbent.LoadPolicy == store.Adaptive && !s.Plugin.Adaptive:
		return notPermitted
	}
	return ""
}

const notPermitted = "the plugin of an EPP replica clamps adaptive to threshold: set its loadPolicy to adaptive, or search.adaptive to off"

// ackTimeout is how long every EPP replica has to show a new revision.
const ackTimeout = 2 * time.Minute

func unacknowledged(s Sample, revision int64) string {
	if s.Plugin.Newest > revision {
		return fmt.Sprintf("an EPP replica shows revision %d, the document has only %d: it was restored from an older copy; remove it, and it is written again above that",
			s.Plugin.Newest, revision)
	}
	return fmt.Sprintf("the EPP replicas show revisions %d to %d, not %d, after %v: does the plugin watch this document?",
		s.Plugin.Oldest, s.Plugin.Newest, revision, ackTimeout)
}

// blind holds still: nothing moves, and after a while that is said once.
func (c *controller) blind(s Sample, why string) action {
	c.unknown++
	if c.unknown < holdAfter || c.holding == why || s.To.Sub(c.heldAt).Abs() < holdEvery && c.holding != "" {
		return action{}
	}
	c.holding, c.heldAt = why, s.To
	return c.decide(store.KindHold, s, c.incumbent, "no decisions are taken: "+why)
}

// sees ends a hold.
func (c *controller) sees(s Sample) (action, bool) {
	held := c.holding != ""
	c.holding, c.unknown = "", 0
	if !held {
		return action{}, false
	}
	return c.decide(store.KindResume, s, c.incumbent, "decisions are taken again: engines and plugin are seen"), true
}

// holdEvery is the least time between the records of two reasons for one hold.
const holdEvery = 10 * time.Minute

// holdAfter is how many unknown samples in a row are worth a record.
const holdAfter = 4

// settle reports whether the sample shows the parameters in force alone: they
// were acknowledged, and the washout since is over.
func (c *controller) settle(s Sample) bool {
	switch {
	case !c.inForce(s.Plugin): // not yet, or a replica has restarted
		if !c.settled.IsZero() {
			c.awaited, c.settled = s.To, time.Time{}
		}
		return false
	case c.settled.IsZero():
		c.settled = s.To.Add(c.settings.Trial.Washout)
	}
	return !s.From.Before(c.settled)
}

// inForce tells that every replica runs the parameters of the document, whichever
// costs it has seen last.
func (c *controller) inForce(p PluginSample) bool {
	return p.State == OK && p.Oldest >= c.parameters && p.Newest <= c.revision
}

// awaiting an acknowledgement of a revision that was, or is about to be, written.
func (c *controller) awaiting(revision int64, now time.Time) {
	c.revision, c.parameters = revision, revision
	c.awaited, c.settled = now, time.Time{}
	if c.trial != nil {
		c.trial.switched, c.trial.acked = now, time.Time{}
	}
}

// adopt parameters that someone else chose, and leave them alone for a while.
func (c *controller) adopt(p store.Params, now time.Time) {
	c.leaveTrial(now)
	c.incumbent, c.probation, c.orders.offer = p, nil, nil
	c.forgetSamples()
	c.climber.wake(c.settings.Search, now)
	c.cooldown = later(c.cooldown, now.Add(c.settings.Guard.Cooldown))
}

// forgetSamples of the incumbent: what is in force is no longer the same.
func (c *controller) forgetSamples() {
	c.history, c.change, c.collapse = nil, cusum{}, nil
}

// remember a sample of the incumbent. One that does not follow the last begins a
// new history: a candidate is never judged against another hour.
func (c *controller) remember(s Sample) {
	if n := len(c.history); n > 0 && s.From.Sub(c.history[n-1].To).Abs() > 2*c.settings.step() {
		c.history, c.change = nil, cusum{}
	}
	c.history = append(c.history, s)
	c.history = c.history[max(0, len(c.history)-historyLength):]
}

func (c *controller) recent(n int) []Sample { return c.history[max(0, len(c.history)-n):] }

func (c *controller) logCosts(samples []Sample) []float64 {
	var out []float64
	for _, s := range samples {
		if cost, ok := c.settings.Objective.Cost(s.Signals); ok {
			out = append(out, math.Log(cost))
		}
	}
	return out
}

// wake starts the search over: the workload or the fleet has changed.
func (c *controller) wake(s Sample, why string) action {
	c.climber.wake(c.settings.Search, s.To)
	c.climber.Unproven = true
	c.history, c.orders.offer = nil, nil
	return c.decide(store.KindWake, s, c.incumbent, why)
}

// decide makes the record of a decision.
func (c *controller) decide(k store.Kind, s Sample, to store.Params, reason string) action {
	e := &store.Evidence{Queries: s.Queries, Samples: []store.Sample{s.record(store.ArmBaseline, c.settings.Objective)}}
	return action{decision: &store.Decision{
		Pool: c.settings.Name, Time: s.To, Kind: k, Mode: string(c.settings.Mode),
		From: c.incumbent, To: to, Reason: reason, Evidence: e,
	}}
}

// clockWentBack forgets what is dated in the future, so that no wait lasts longer
// than it can from now on, and takes what candidates have run along. A trial in progress cannot be judged any more: its
// lease is taken to be over, and the next step ends it.
func (c *controller) clockWentBack(now time.Time, by time.Duration) {
	g, s := c.settings.Guard, c.settings.Search
	c.forgetSamples()
	c.log, c.exposed = nil, c.exposed.earlier(by)
	c.awaited, c.settled = now, time.Time{}
	c.cooldown = sooner(c.cooldown, now.Add(g.MaxCooldown))
	c.shedAt = sooner(c.shedAt, now.Add(g.MaxCooldown))
	c.climber.ExploreAt = sooner(c.climber.ExploreAt, now.Add(s.MaxExplore))
	for p, f := range c.climber.Tried {
		f.until = sooner(f.until, now.Add(s.MaxExplore))
		c.climber.Tried[p] = f
	}
	clear(c.suggested)
	c.orders.clockWentBack(now, c.settings.Approval)
	if c.trial != nil {
		c.trial.switched, c.trial.since = now.Add(-c.settings.trialLease()), c.trial.since.Add(-by)
	}
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
