package tuner

import (
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// propose looks for a candidate and starts its trial.
func (c *controller) propose(s Sample) action {
	if c.exposed.share(s.To) >= c.settings.Guard.MaxExposure {
		return action{}
	}
	if c.orders.offer != nil {
		return c.permitted(s, c.orders.offer.proposal, c.recent(c.settings.blockSamples()))
	}
	v := c.view(s)
	wasResting := c.climber.Resting
	p, ok := c.candidate(v)
	switch {
	case ok && c.settings.Mode == Observe:
		return c.suggest(s, p)
	case ok:
		return c.permitted(s, p, c.recent(c.settings.blockSamples()))
	case c.climber.Resting && !wasResting:
		c.learn(v, c.incumbent, s.To)
		return c.decide(store.KindRest, s, c.incumbent, "no step from the incumbent promises an improvement: the search rests until something changes")
	}
	return action{}
}

// candidate from the search, which wants a block of the incumbent to compare with.
// Where the cost curves are sure of an improvement already, every minute of
// waiting for that is a minute of the loss they see.
func (c *controller) candidate(v view) (proposal, bool) {
	if len(c.history) >= c.settings.blockSamples() {
		return c.search.propose(&c.climber, v)
	}
	p, ok := c.search.fromCurves(&c.climber, v)
	p.curves = v.model.record()
	return p, ok && c.settings.has(Haste) && c.settings.Trial.likely(p.prior)
}

func (c *controller) view(s Sample) view {
	v := view{
		now: s.To, incumbent: c.incumbent, recent: Sample{Signals: total(c.history)},
		noise: longRunVariance(c.logCosts(c.history)), adaptive: s.Plugin.Adaptive,
	}
	for _, h := range c.history {
		v.recent.Plugin.Loads += h.Plugin.Loads
		v.recent.Plugin.Recomputes += h.Plugin.Recomputes
		v.recent.Plugin.GateStops += h.Plugin.GateStops
	}
	if m, ok := fitCurves(c.log, s.To, c.settings.Search); ok && c.settings.has(Curves) {
		v.model = &m
		if sig, ok := signatureOf(v.recent.Signals, v.model); ok {
			v.recalled = c.recall(sig)
		}
	}
	return v
}

func (c *controller) recall(s signature) *store.Params {
	if !c.settings.has(Memory) {
		return nil
	}
	return c.memory.recall(s)
}

// learn that p is the best known for the workload in view.
func (c *controller) learn(v view, p store.Params, now time.Time) {
	if sig, ok := signatureOf(v.recent.Signals, v.model); ok {
		c.memory = c.memory.remember(sig, p, now)
	}
}

// suggest says, in observe mode, what would be tried, once per candidate and
// exploring interval.
func (c *controller) suggest(s Sample, p proposal) action {
	if until, said := c.suggested[p.params]; said && s.To.Before(until) {
		return action{}
	}
	c.suggested[p.params] = s.To.Add(c.settings.Search.Explore)
	a := c.decide(store.KindSuggest, s, p.params, fmt.Sprintf("would try %s instead of %s: %s; nothing is published in observe mode", p.params, c.incumbent, p.why))
	a.decision.Evidence.Alternatives, a.decision.Evidence.Curves = p.alternatives, p.curves
	return a
}
