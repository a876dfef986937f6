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
	fromHome   origin = "home"      // back towards the initial thresholds, left for other requests
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
	if home, ok := s.home(c, v); ok && (len(all) == 0 || home.prior.mean <= all[0].prior().mean) {
		return home, true
	}
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

// home proposes the initial thresholds after the workload has changed, unless the
// cost curves expect a loss worth a move: that the incumbent is better was shown for
// other requests, and whoever chose the initial thresholds chose them for all.
func (s searcher) home(c *climber, v view) (proposal, bool) {
	to := s.settings.Initial
	to.LoadPolicy = v.incumbent.LoadPolicy
	p := s.ladder.toward(v.incumbent, to, s.settings.Search.MaxStep)
	d := rung(v.incumbent, p)
	if !s.settings.has(Homing) || !c.Unproven || d.Dim != tokenMinimum || s.unguarded(v.incumbent, p) || c.failedRecently(p, v.now) {
		return proposal{}, false
	}
	e := v.model.predict(v.incumbent, p)
	if d.By < 0 && v.dry() {
		p, e = s.ladder.toward(v.incumbent, s.cautious(p), s.settings.Search.MaxStep), e.part()
	}
	if e.prior().credible(likelyAlpha).High > s.settings.Trial.MinEffect {
		return proposal{}, false
	}
	out := scored{p, d, e}.proposal(fmt.Sprintf(
		"the incumbent was found for other requests; for these the cost curves predict %.1f%% (± %.1f) less end-to-end time nearer the initial thresholds", 100*e.gain, 100*e.stderr))
	out.origin = fromHome
	return out, true
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
