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
	lastGood  store.Params
	climber   climber
	memory    memory

	// settled is when the parameters in force have been so long enough for the
	// storage backlog of their predecessor to be gone; zero while an
	// acknowledgement is awaited.
	settled  time.Time
	revision int64

	trial     *switchback
	probation *probation
	history   []Sample // the incumbent's, since settled
	log       []evidence
	change    cusum

	collapse   []Sample // in a row, whichever arm was in force
	cooldown   time.Time
	aborts     int
	shedAt     time.Time
	sheds      int
	holding    bool
	unknown    int
	proposed   map[store.Params]time.Time // observe mode: said already
	lastSample Sample
}

// probation watches a move: if the new incumbent turns out worse than the old
// one was, the move is rolled back.
type probation struct {
	former   store.Params
	logCost  float64 // the former incumbent's, in the trial
	until    time.Time
	samples  []float64
	variance float64
}

// observation is one step's input.
type observation struct {
	sample Sample
	// open tells whether the schedule allows tuning.
	open bool
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
		settings: s, search: searcher{settings: s, ladder: newLadder(s.Bounds)},
		incumbent: incumbent, lastGood: incumbent, climber: newClimber(s.Search, now),
		proposed: map[store.Params]time.Time{},
	}
}

// next takes one step. The order of its checks is the order of what matters:
// see enough, do no harm, finish what is running, then look for better.
func (c *controller) next(o observation) action {
	s := o.sample
	c.lastSample = s
	c.note(s)
	c.watchCollapse(s)
	if c.trial != nil {
		return c.inTrial(o)
	}
	if s.State == Unknown || s.Plugin.State != OK {
		return c.blind(s)
	}
	c.holding, c.unknown = false, 0
	if a, acted := c.shed(o); acted {
		return a
	}
	if !c.settle(s) || s.State == Idle {
		return action{}
	}
	cost, ok := c.settings.Objective.Cost(s.Signals)
	if !ok {
		return action{}
	}
	c.remember(s)
	if a, acted := c.onProbation(s, math.Log(cost)); acted {
		return a
	}
	if !o.open {
		return action{}
	}
	if c.change.add(math.Log(cost)) {
		return c.wake(s)
	}
	if s.To.Before(c.cooldown) || len(c.history) < c.blockSamples() {
		return action{}
	}
	return c.propose(s)
}

// note keeps the evidence behind the cost curves, whichever arm is in force.
func (c *controller) note(s Sample) {
	if s.State != OK || s.Plugin.State != OK {
		return
	}
	c.log = append(c.log, evidence{at: s.To, points: s.Plugin.Curve, signals: s.Signals})
	oldest := s.To.Add(-(maxReach + 1) * c.settings.Search.Evidence)
	for len(c.log) > 0 && c.log[0].at.Before(oldest) {
		c.log = c.log[1:]
	}
}

// blind holds still without data: nothing moves, and after a while that is said
// once.
func (c *controller) blind(s Sample) action {
	c.unknown++
	if c.holding || c.unknown < holdAfter {
		return action{}
	}
	c.holding = true
	return c.decide(store.KindHold, s, c.incumbent, "no decisions are taken while data is missing: "+s.why())
}

// holdAfter is how many unknown samples in a row are worth a record.
const holdAfter = 4

// settle reports whether the sample shows the parameters in force alone: they
// were acknowledged, and the washout since is over.
func (c *controller) settle(s Sample) bool {
	if c.settled.IsZero() {
		if s.Plugin.Revision < c.revision {
			return false
		}
		c.settled = s.To.Add(c.settings.Trial.Washout)
	}
	return !s.From.Before(c.settled)
}

// awaiting an acknowledgement of a revision that was, or is about to be, written.
func (c *controller) awaiting(revision int64, now time.Time) {
	c.revision = revision
	if c.trial != nil {
		c.trial.switched, c.trial.acked = now, time.Time{}
	}
	c.settled = time.Time{}
}

// adopt parameters that someone else chose, and leave them alone for a while.
func (c *controller) adopt(p store.Params, revision int64, now time.Time) {
	c.incumbent, c.lastGood = p, p
	c.trial, c.probation, c.history, c.change = nil, nil, nil, cusum{}
	c.climber.wake(c.settings.Search, now)
	c.cooldown = now.Add(c.settings.Guard.Cooldown)
	c.awaiting(revision, now)
}

func (c *controller) remember(s Sample) {
	c.history = append(c.history, s)
	if len(c.history) > historyLength {
		c.history = c.history[1:]
	}
}

// blockSamples is the number of samples in the judged part of a block.
func (c *controller) blockSamples() int {
	return max(minBlockSamples, int((c.settings.Trial.Block-c.settings.Trial.Washout)/c.settings.step()))
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
func (c *controller) wake(s Sample) action {
	c.climber.wake(c.settings.Search, s.To)
	c.history, c.cooldown = nil, s.To
	return c.decide(store.KindWake, s, c.incumbent, "the incumbent's cost has left its band: the workload or the fleet has changed, and the search starts over")
}

// propose looks for a candidate and starts its trial.
func (c *controller) propose(s Sample) action {
	v := c.view(s)
	wasResting := c.climber.Resting
	p, ok := c.search.propose(&c.climber, v)
	if !ok {
		if c.climber.Resting && !wasResting {
			return c.decide(store.KindRest, s, c.incumbent, "no step from the incumbent promises an improvement: the search rests until something changes")
		}
		return action{}
	}
	if c.settings.Mode == Observe {
		return c.suggest(s, p)
	}
	return c.start(s, p, c.recent(c.blockSamples()))
}

func (c *controller) view(s Sample) view {
	v := view{now: s.To, incumbent: c.incumbent, recent: Sample{Signals: total(c.history)}}
	for _, h := range c.history {
		v.recent.Plugin.Loads += h.Plugin.Loads
		v.recent.Plugin.Recomputes += h.Plugin.Recomputes
		v.recent.Plugin.GateStops += h.Plugin.GateStops
	}
	if m, ok := fitCurves(c.log, s.To, c.settings.Search); ok {
		v.model = &m
		if sig, ok := sign(v.recent.Signals, v.model); ok {
			v.recalled = c.memory.recall(sig)
		}
	}
	return v
}

// suggest says, in observe mode, what would be tried, once per candidate and
// exploring interval.
func (c *controller) suggest(s Sample, p proposal) action {
	if until, said := c.proposed[p.params]; said && s.To.Before(until) {
		return action{}
	}
	c.proposed[p.params] = s.To.Add(c.settings.Search.Explore)
	a := c.decide(store.KindTrial, s, p.params, fmt.Sprintf("would try %s instead of %s: %s; nothing is published in observe mode", p.params, c.incumbent, p.why))
	a.decision.Evidence.Alternatives, a.decision.Evidence.Curves = p.alternatives, p.curves
	return a
}

// decide makes the record of a decision.
func (c *controller) decide(k store.Kind, s Sample, to store.Params, reason string) action {
	e := &store.Evidence{Queries: s.Queries, Samples: []store.Sample{s.record(store.ArmBaseline, c.settings.Objective)}}
	return action{decision: &store.Decision{
		Pool: c.settings.Name, Time: s.To, Kind: k, Mode: string(c.settings.Mode),
		From: c.incumbent, To: to, Reason: reason, Evidence: e,
	}}
}
