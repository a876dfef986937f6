package tuner

import (
	"fmt"
	"math"

	"github.com/kvtuner/kvtuner/store"
)

// shedAfter is how many samples in a row make a collapse.
const shedAfter = 2

// watchCollapse counts the samples in a row that show the incumbent collapse. A
// candidate's backlog is not the incumbent's fault: only settled samples count.
func (c *controller) watchCollapse(s Sample) {
	if s.State != OK || !c.settings.Guard.collapsed(s) {
		c.collapse = nil
		return
	}
	c.collapse = append(c.collapse, s)
	c.collapse = c.collapse[max(0, len(c.collapse)-shedAfter):]
}

// shed answers a collapse at once: stop restoring, compare afterwards. It is the
// one step that may be longer than search.maxStep, and it does not wait for a
// cool-down; a shed that did not help is not repeated for a while.
func (c *controller) shed(o observation) (action, bool) {
	s := o.sample
	to, _ := c.settings.Bounds.Clamp(store.Params{
		MinExternalReusableTokens: store.Never, MaxWaitingRequests: c.incumbent.MaxWaitingRequests, LoadPolicy: c.incumbent.LoadPolicy,
	})
	if !c.settings.has(Shedding) || len(c.collapse) < shedAfter || !o.open || s.To.Before(c.shedAt) || to.MinExternalReusableTokens <= c.incumbent.MinExternalReusableTokens || c.settings.Mode == Observe {
		return action{}, false
	}
	p := proposal{params: to, origin: fromShed, why: fmt.Sprintf("%.0f of %.0f requests in flight wait and the SLO is broken: restores are stopped first", s.Signals.Waiting(), s.Signals.InFlight())}
	before := c.collapse
	c.collapse = nil
	a := c.permitted(s, p, before)
	return a, a != (action{})
}

// collapseCosts are the log costs of a collapse. A sample in which nothing
// completes is the worst of all: it costs, by Little's law, at least what its
// requests in flight have spent.
func (c *controller) collapseCosts(samples []Sample) []float64 {
	var out []float64
	for _, s := range samples {
		cost, ok := c.settings.Objective.Cost(s.Signals)
		if !ok {
			cost = s.Signals.InFlight() * s.Signals.Seconds
		}
		out = append(out, math.Log(cost))
	}
	return out
}
