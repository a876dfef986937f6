package tuner

import (
	"context"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// halt obeys the store's kill switch: plugins run their static configuration now,
// so that a trial is over and what was seen of the incumbent counts no more.
// Nothing is published, and the pool is not ready.
func (t *Tuner) halt(ctx context.Context, now time.Time, why error) error {
	if t.halted {
		return t.recordPending(ctx, now)
	}
	c := t.control
	t.supersede(now)
	c.adopt(c.incumbent, now)
	a := c.decide(store.KindHold, Sample{To: now, State: Unknown}, c.incumbent, "plugins run their static configuration and nothing is tuned: "+why.Error())
	a.decision.Evidence = nil
	t.halted, t.attempt = true, nil
	return t.act(ctx, now, a)
}

// unhalt goes on once the kill switch is gone, without the trial that it ended.
func (t *Tuner) unhalt(ctx context.Context, now time.Time) error {
	if !t.halted {
		return nil
	}
	t.halted = false
	d, c := t.document, t.control
	c.awaiting(d.Revision, now)
	a := c.decide(store.KindResume, Sample{To: now, State: Unknown}, c.incumbent, fmt.Sprintf("the kill switch is gone: %s is in force again", c.incumbent))
	a.decision.Evidence = nil
	if d.Trial != nil {
		a.change = &change{baseline: c.incumbent}
	}
	return t.act(ctx, now, a)
}
