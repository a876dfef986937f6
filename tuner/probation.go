package tuner

import (
	"fmt"
	"math"

	"github.com/kvtuner/kvtuner/store"
)

// probation watches a move: if the new incumbent turns out worse than the old
// one was, the move is rolled back.
type probation struct {
	former store.Params
	before []float64 // the former incumbent's log costs, in the trial
	after  []float64
	until  int // samples
	// requests of the candidate, in the trial.
	requests Signals
	// variance of one sample's log cost.
	variance float64
}

// onProbation rolls a move back when the new incumbent surely costs more than
// the old one did, by as much as would have been worth a move. The interval is
// that of the trials: it may be looked at after every sample. Other requests than
// those of the trial end the probation: what they cost says nothing of the move.
func (c *controller) onProbation(s Sample, logCost float64) (action, bool) {
	p := c.probation
	if p == nil || !c.settings.has(Probation) {
		return action{}, false
	}
	if c.settings.has(ChangeDetection) && otherWorkload(p.requests, s.Signals, float64(c.settings.Trial.MinRequests)) {
		c.probation = nil
		return action{}, false
	}
	p.after = append(p.after, logCost)
	excess := mean(p.after) - mean(p.before)
	variance := p.variance * (1/float64(len(p.after)) + 1/float64(len(p.before)))
	surely := excess - confidenceHalfWidth(variance, c.settings.Trial.Alpha)
	if len(p.after) >= minBlockSamples && surely > 0 && excess > c.settings.Trial.MinEffect {
		return c.rollBack(s, excess), true
	}
	if len(p.after) >= p.until {
		c.probation = nil
	}
	return action{}, false
}

func (c *controller) rollBack(s Sample, excess float64) action {
	p := c.probation
	a := c.decide(store.KindRollback, s, p.former, fmt.Sprintf("after the move to %s a request costs %.1f%% more than under %s before it: rolled back", c.incumbent, 100*math.Expm1(excess), p.former))
	a.change = &change{baseline: p.former}
	c.climber.rejected(proposal{params: c.incumbent, origin: fromModel, direction: rung(p.former, c.incumbent)}, c.settings.Search, s.To, true)
	c.memory = c.memory.forget(c.incumbent)
	c.incumbent, c.probation = p.former, nil
	c.forgetSamples()
	c.cooldown = s.To.Add(c.settings.Guard.Cooldown)
	return a
}
