package chaos

import (
	"errors"
	"time"

	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
)

// order is what an operator says: mostly yes to a proposal, if there is one.
func order(f fault, p *process) tuner.Command {
	c := tuner.Command{Actor: "chaos", Verb: tuner.Verbs()[f.pick>>8%3]}
	if p.tuner != nil {
		if s := p.tuner.Status().Proposal; s != nil {
			c.Verb, c.Proposal = tuner.Approve, s.ID
		}
	}
	switch {
	case c.Verb == tuner.Pause:
		c.For = max(time.Minute, f.last)
	case c.Verb == tuner.Revert:
		c.Target = pickFrom(f, []tuner.Target{tuner.ToInitial, tuner.ToKnownGood})
	}
	return c
}

// reject what is proposed, if anything is.
func reject(p *process) error {
	if p.tuner == nil || p.tuner.Status().Proposal == nil {
		return nil
	}
	return p.command(tuner.Command{Actor: "chaos", Verb: tuner.Reject, Proposal: p.tuner.Status().Proposal.ID})
}

// restartDeposed restarts the tuners that say that another has taken over, as
// their operators do once it is gone.
func (w *world) restartDeposed() error {
	if w.on(tunerSecond) {
		return nil
	}
	for _, p := range w.tuners {
		if errors.Is(p.err, configmap.ErrTakenOver) && p.tuner != nil {
			if err := p.die(); err != nil {
				return err
			}
		}
	}
	return nil
}

// obeyed notes a command that was accepted, and whether it is carried out: one that
// could not be saved may be forgotten.
func (v *watch) obeyed(p *process, c tuner.Command, done bool) {
	if c.Verb == tuner.Pause || c.Verb == tuner.Resume {
		delete(v.pauses, p)
	}
	switch {
	case !done:
	case c.Verb == tuner.Pause:
		v.pauses[p] = p.clock().Add(c.For)
	case c.Verb == tuner.Revert:
		d := v.w.document()
		if c.Target == tuner.ToInitial && v.w.plan.settings.Mode != tuner.Observe && d != nil && d.Baseline != v.w.settings.Initial && v.w.settings.Bounds.Contains(v.w.settings.Initial) {
			v.violate("a revert is obeyed", "%s has %s after it, the initial is %s", p.name, d.Baseline, v.w.settings.Initial)
		}
	}
}
