package tuner

import (
	"fmt"
	"sort"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// origin says where a candidate comes from.
type origin string

const (
	fromModel  origin = "crossover" // the cost curves predict a gain
	fromMemory origin = "memory"    // it was best when this workload was last seen
	fromClimb  origin = "climb"     // a neighbour on the ladder
	fromShed   origin = "shed"      // collapse: stop restoring first
	fromReturn origin = "return"    // back towards the initial gate
)

// proposal is a candidate worth a trial.
type proposal struct {
	params       store.Params
	origin       origin
	why          string
	direction    direction
	alternatives []store.Alternative
	curves       []store.CurveBucket
	// predicted is the relative gain that the cost curves promised, prior what
	// they expect of its log cost, kept up to date; zero if nothing.
	predicted float64
	prior     estimate
}

// climber is the hill climber's state: the step in rungs, the direction that
// last succeeded, and the candidates that failed against the incumbent.
type climber struct {
	Step  int                     `json:"step"`
	Last  *direction              `json:"last,omitempty"`
	Tried map[store.Params]failed `json:"-"`
	// ExploreAt is when the next trial that no evidence asked for may start.
	ExploreAt time.Time `json:"exploreAt"`
	// Known are the prompts for which all this was learned, nil until seen.
	Known *prompts `json:"known,omitempty"`
	// Resting: every neighbour was tried or is pointless, until ExploreAt.
	Resting bool `json:"resting"`
}

// failed remembers a candidate that did not win, and until when it is not worth
// another trial.
type failed struct {
	times   int
	until   time.Time
	aborted bool
	// predicted gain that it failed to show, and whether by restoring more or
	// less; 0 and neither for a candidate that the curves did not propose.
	predicted float64
	sense     sense
}

// sense of a step: towards more restores or fewer.
type sense int

const (
	fewerRestores sense = -1
	moreRestores  sense = 1
)

func (d direction) sense() sense {
	if (d.Dim != queueLimit) == (d.By > 0) {
		return fewerRestores
	}
	return moreRestores
}

// view is what a search looks at.
type view struct {
	now       time.Time
	incumbent store.Params
	recent    Sample // sum of the incumbent's recent samples
	// noise is the long-run variance of one sample's log cost.
	noise    float64
	model    *curves
	recalled *store.Params
	adaptive bool // every replica of the plugin permits it
}

// searcher proposes candidates.
type searcher struct {
	settings Settings
	ladder   ladder
}

// propose returns the best candidate that evidence or the climb suggests, and
// false when there is none: the pool rests.
//
//  1. What the cost curves predict to gain at least trial.minEffect, surely.
//  2. What was best when this workload was last seen.
//  3. A neighbour on the ladder, when exploring is due: the last successful
//     direction first, none that the curves expect to lose.
func (s searcher) propose(c *climber, v view) (proposal, bool) {
	for _, from := range []func(*climber, view) (proposal, bool){s.fromCurves, s.fromMemory, s.fromClimb} {
		if p, ok := from(c, v); ok {
			p.curves = v.model.record()
			return p, true
		}
	}
	return proposal{}, false
}

// fromCurves proposes what the cost curves predict to gain, surely.
func (s searcher) fromCurves(c *climber, v view) (proposal, bool) {
	if v.model == nil {
		return proposal{}, false
	}
	all := s.scored(c, v)
	gate, ok := s.loosenGate(c, v)
	if len(all) == 0 || ok && gate.prior.mean <= all[0].prior().mean {
		return gate, ok
	}
	best := all[0]
	// A nearer one with much of the gain goes first: restores slow each other, so
	// that after the first step the curves are not the same. Where nothing is
	// restored yet, a strict gate sees to that (cautious).
	for _, a := range all {
		if !v.dry() && a.gain >= nearer*best.gain && abs(a.direction.By) < abs(best.direction.By) {
			best = a
		}
	}
	out := best.proposal(fmt.Sprintf("the cost curves predict %.1f%% (± %.1f) less end-to-end time", 100*best.gain, 100*best.stderr))
	for _, a := range all {
		if a.params != out.params {
			out.alternatives = append(out.alternatives, store.Alternative{Params: a.params, Why: fmt.Sprintf("predicted gain %.1f%% (± %.1f)", 100*a.gain, 100*a.stderr)})
		}
	}
	return out, true
}

// scored is a candidate with its prediction.
type scored struct {
	params    store.Params
	direction direction
	prediction
}

func (c scored) proposal(why string) proposal {
	return proposal{params: c.params, origin: fromModel, direction: c.direction, predicted: c.gain, prior: c.prior(), why: why}
}

// predictable are the steps that the cost curves can judge.
func (s searcher) predictable(v view) []direction {
	var all []direction
	if v.adaptive {
		all = append(all, direction{Dim: loadPolicy, By: 1})
	}
	for by := -s.settings.Search.MaxStep; by <= s.settings.Search.MaxStep; by++ {
		all = append(all, direction{Dim: tokenMinimum, By: by})
	}
	return all
}

// scored lists the candidates within reach that promise enough, the best first.
func (s searcher) scored(c *climber, v view) []scored {
	var all []scored
	for _, d := range s.predictable(v) {
		p, ok := s.ladder.walk(v.incumbent, d)
		if !ok || s.unguarded(v.incumbent, p) {
			continue
		}
		e := v.model.predict(v.incumbent, p)
		promising := e.gain-e.stderr >= s.settings.Trial.MinEffect
		if d.Dim == tokenMinimum && d.By < 0 && v.dry() {
			// Of what an open gate would gain, a strict one gains a part.
			p, e = s.cautious(p), e.part()
		}
		if promising && !s.doubted(c, d, v.now, e.gain) && !c.failedOnLess(p, v.now, e.gain) {
			all = append(all, scored{p, d, e})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].gain > all[j].gain })
	return all
}

// doubted tells that the curves were wrong lately: a candidate that they proposed
// in the same sense has failed on a prediction no smaller. Neighbours promise
// much the same, and each trial of one is evidence about all.
func (c *climber) doubted(d direction, now time.Time, gain float64) bool {
	for tried, f := range c.Tried {
		if f.sense == d.sense() && c.failedOnLess(tried, now, gain) {
			return true
		}
	}
	return false
}

func (s searcher) doubted(c *climber, d direction, now time.Time, gain float64) bool {
	return s.settings.has(Doubt) && c.doubted(d, now, gain)
}

// loosenGate proposes to let through what the gate stops, if the curves say that
// restoring it would pay: as a gain if it is worth a move, else as a return
// towards the initial limit.
func (s searcher) loosenGate(c *climber, v view) (proposal, bool) {
	d := direction{Dim: queueLimit, By: s.settings.Search.Step}
	p, ok := s.ladder.walk(v.incumbent, d)
	e := v.model.predictGate(v.incumbent)
	if !ok || s.unguarded(v.incumbent, p) || s.doubted(c, d, v.now, e.gain/2) || c.failedOnLess(p, v.now, e.gain/2) {
		return proposal{}, false
	}
	sure := e.gain - e.stderr
	out := scored{p, d, e.part()}.proposal(fmt.Sprintf(
		"the gate stops requests whose restore would pay: %.1f%% (± %.1f) of the end-to-end time", 100*e.gain, 100*e.stderr))
	switch {
	case sure >= s.settings.Trial.MinEffect:
		return out, true
	case sure > 0 && store.CompareWaiting(p.MaxWaitingRequests, s.settings.Initial.MaxWaitingRequests) <= 0:
		out.origin = fromReturn
		return out, true
	}
	return proposal{}, false
}

// unguarded tells that adaptive parameters would loosen a threshold beyond the
// initial one. A plugin whose costs have run out, say because the tuner is gone,
// has the thresholds alone; under the rule nobody sees what they would do then.
func (s searcher) unguarded(from, to store.Params) bool {
	if to.LoadPolicy != store.Adaptive {
		return false
	}
	initial := s.settings.Initial
	return to.MinExternalReusableTokens < min(from.MinExternalReusableTokens, initial.MinExternalReusableTokens) ||
		store.CompareWaiting(to.MaxWaitingRequests, from.MaxWaitingRequests) > 0 &&
			store.CompareWaiting(to.MaxWaitingRequests, initial.MaxWaitingRequests) > 0
}

// noLoadShare is the share of decisions below which restores do not matter.
const noLoadShare = 0.005

// dry tells that nothing but probes is restored: what a restore costs is known
// only for a storage at rest.
func (v view) dry() bool {
	decisions := v.recent.Plugin.Loads + v.recent.Plugin.Recomputes
	return decisions > 0 && v.recent.Plugin.Loads/decisions < noLoadShare
}

// cautiousLimit is the queue limit under which restores are let in again.
const cautiousLimit = 2

// cautious lets restores in again only while hardly anything waits, so that the
// storage that drowned in them does not at once drown again. If the gate then
// stops what would pay, loosenGate says so.
func (s searcher) cautious(p store.Params) store.Params {
	if !s.settings.has(Caution) || store.CompareWaiting(p.MaxWaitingRequests, cautiousLimit) <= 0 {
		return p
	}
	for range s.settings.Search.MaxStep {
		next, ok := s.ladder.walk(p, direction{Dim: queueLimit, By: -1})
		if !ok || store.CompareWaiting(p.MaxWaitingRequests, cautiousLimit) <= 0 {
			break
		}
		p = next
	}
	return p
}

// nearer is the share of the best predicted gain that a smaller step must have.
const nearer = 0.5

func (s searcher) fromMemory(c *climber, v view) (proposal, bool) {
	if v.recalled == nil || *v.recalled == v.incumbent {
		return proposal{}, false
	}
	if _, moved := s.settings.clamp(*v.recalled); moved {
		return proposal{}, false
	}
	p := s.ladder.toward(v.incumbent, *v.recalled, s.settings.Search.MaxStep)
	if c.failedRecently(p, v.now) || s.unguarded(v.incumbent, p) {
		return proposal{}, false
	}
	return proposal{params: p, origin: fromMemory, why: fmt.Sprintf("%s was best when this workload was last seen", v.recalled)}, true
}

// worthExploring is the relative effect that a trial of a neighbour must be able
// to detect: the cost curves would hardly miss a larger one, and a trial that
// cannot decide in its budget only costs.
const worthExploring = 0.06

func (s searcher) fromClimb(c *climber, v view) (proposal, bool) {
	if !s.settings.has(Exploring) || v.now.Before(c.ExploreAt) || s.settings.Trial.detectable(v.noise, s.settings.blockSamples()) > worthExploring {
		return proposal{}, false
	}
	if c.Resting {
		c.wake(s.settings.Search, v.now)
	}
	for c.Step >= 1 {
		candidates, passed := s.neighbours(c, v)
		if len(candidates) > 0 {
			best := candidates[0]
			best.alternatives = passed
			for _, p := range candidates[1:] {
				best.alternatives = append(best.alternatives, store.Alternative{Params: p.params, Why: "next in turn: " + p.why})
			}
			return best, true
		}
		c.Step /= 2
	}
	c.Step = s.settings.Search.Step
	c.Resting, c.ExploreAt = true, v.now.Add(s.settings.Search.MaxExplore)
	return proposal{}, false
}

// neighbours lists the steps worth exploring from the incumbent, and those
// passed over, with the reason.
func (s searcher) neighbours(c *climber, v view) (out []proposal, passed []store.Alternative) {
	for _, d := range c.directions() {
		p, ok := s.ladder.walk(v.incumbent, d)
		if !ok || c.failedRecently(p, v.now) {
			continue
		}
		if why := s.pointless(d, p, v); why != "" {
			passed = append(passed, store.Alternative{Params: p, Why: why})
			continue
		}
		out = append(out, proposal{params: p, origin: fromClimb, direction: d,
			why: fmt.Sprintf("exploring %d rung(s) from the incumbent", abs(d.By))})
	}
	return out, passed
}

// directions to try at the present step, the one that last succeeded first. Back to
// the thresholds alone comes last: where weighing spares a storage, its curves no
// longer show from what.
func (c *climber) directions() []direction {
	all := []direction{
		{loadPolicy, 1}, {tokenMinimum, c.Step}, {tokenMinimum, -c.Step}, {queueLimit, -c.Step}, {queueLimit, c.Step}, {loadPolicy, -1},
	}
	if c.Last == nil {
		return all
	}
	sort.SliceStable(all, func(i, j int) bool { return c.Last.along(all[i]) && !c.Last.along(all[j]) })
	return all
}

// along reports whether both point the same way.
func (d direction) along(o direction) bool { return d.Dim == o.Dim && (d.By > 0) == (o.By > 0) }

// noGateShare is the share of decisions below which the gate is said not to
// matter.
const noGateShare = 0.005

// pointless says why a step cannot help, as far as the evidence goes.
func (s searcher) pointless(d direction, to store.Params, v view) string {
	if s.unguarded(v.incumbent, to) {
		return fmt.Sprintf("it is looser than %s, and adaptive is left with its thresholds when costs run out", s.settings.Initial)
	}
	if d.Dim == queueLimit {
		plugin := v.recent.Plugin
		decisions := plugin.Loads + plugin.Recomputes
		switch {
		case decisions == 0:
			return "no decisions were seen"
		case plugin.GateStops/decisions >= noGateShare:
			return ""
		case d.By > 0:
			return "the gate hardly ever closes: loosening it changes nothing"
		case plugin.Loads/decisions < noLoadShare:
			return "hardly anything is restored: a stricter gate changes nothing"
		}
		return ""
	}
	switch {
	case d.Dim == loadPolicy && !v.adaptive:
		return "the plugin's own loadPolicy does not permit it"
	case d.Dim == loadPolicy && v.model == nil:
		return "what restores cost is not known"
	case v.model == nil:
		return ""
	}
	e := v.model.predict(v.incumbent, to)
	switch {
	case !e.changes && d.Dim == loadPolicy: // by bucket; within one, engines differ
	case !e.changes:
		return "no request lies between: it changes nothing"
	case e.gain+e.stderr < 0:
		return fmt.Sprintf("the cost curves predict a loss of %.1f%%", -100*e.gain)
	}
	return ""
}

// failedOnLess is like failedRecently, unless the gain now predicted is well above
// the one that the candidate failed to show: then things have changed.
func (c *climber) failedOnLess(p store.Params, now time.Time, gain float64) bool {
	f := c.Tried[p]
	return c.failedRecently(p, now) && (f.aborted || gain < 1.5*f.predicted+0.01)
}

func (c *climber) failedRecently(p store.Params, now time.Time) bool {
	f, ok := c.Tried[p]
	return ok && now.Before(f.until)
}

// succeeded follows a move: keep walking that way, with a longer step.
func (c *climber) succeeded(p proposal, s Search, now time.Time) {
	clear(c.Tried)
	c.Resting, c.ExploreAt, c.Known = false, now, nil
	if p.origin == fromClimb {
		d := p.direction
		c.Last = &d
		c.Step = min(2*c.Step, s.MaxStep)
	}
}

// rejected follows a candidate that did not win. A neighbour is not tried again
// before all others were; what evidence proposed, after a wait that doubles.
// Where the curves were wrong, it is twice doubled with each failure in the same
// sense: the same curves go on promising the same.
func (c *climber) rejected(p proposal, s Search, now time.Time, abort bool) {
	f := c.Tried[p.params]
	f.times++
	f.aborted, f.predicted, f.sense = abort, p.predicted, 0
	switch p.origin {
	case fromClimb:
		f.until = now.Add(s.MaxExplore)
		c.ExploreAt = now.Add(s.Explore)
	case fromModel:
		f.sense = p.direction.sense()
		f.times = 1 + c.failures(f.sense)
		f.until = now.Add(backOff(s.Explore, s.MaxExplore, 2*f.times-1))
	default:
		f.until = now.Add(backOff(s.Explore, s.MaxExplore, f.times))
	}
	c.Tried[p.params] = f
}

// failures of what the curves proposed in one sense, since the last success.
func (c *climber) failures(in sense) int {
	most := 0
	for _, f := range c.Tried {
		if f.sense == in {
			most = max(most, f.times)
		}
	}
	return most
}

// wake forgets what may no longer be true after a change. What the guard had to
// stop stays stopped for its time.
func (c *climber) wake(s Search, now time.Time) {
	tried := c.Tried
	*c = newClimber(s, now)
	for p, f := range tried {
		if f.aborted && now.Before(f.until) {
			c.Tried[p] = f
		}
	}
}

func newClimber(s Search, now time.Time) climber {
	return climber{Step: s.Step, Tried: map[store.Params]failed{}, ExploreAt: now.Add(s.Explore)}
}

// backOff doubles a wait with each further time, up to a limit.
func backOff(first, limit time.Duration, times int) time.Duration {
	for ; times > 1 && first < limit; times-- {
		first *= 2
	}
	return min(first, limit)
}

func abs(i int) int { return max(i, -i) }
