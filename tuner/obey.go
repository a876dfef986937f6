package tuner

import (
	"context"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Receipt is what became of a command that was accepted.
type Receipt struct {
	// Decision is its record.
	Decision store.Decision `json:"decision"`
	// Pending says what is not done yet and is tried again in each step: a store
	// that does not take writes delays a command, it does not undo it.
	Pending string `json:"pending,omitempty"`
}

// Obey carries out an operator's command at now, between two steps or while one
// waits for Prometheus. It may be called from any goroutine.
//
// Errors wrap store.ErrInvalid if the command is impossible, and ErrRefused if
// the pool's state or mode does not allow it; any other error means that the
// store or the journal fails, and that the command was not accepted. A candidate
// whose block is not published yet is dropped even then.
func (t *Tuner) Obey(ctx context.Context, now time.Time, o Command) (Receipt, error) {
	if err := o.Validate(); err != nil {
		return Receipt{}, err
	}
	if err := t.take(ctx); err != nil {
		return Receipt{}, err
	}
	defer t.yield()
	now = now.Round(0)
	if err := t.readyToObey(ctx, now); err != nil {
		return Receipt{}, fmt.Errorf("pool %s cannot take a command: %w", t.o.Settings.Name, err)
	}
	a, err := t.control.obey(now, o)
	if err != nil {
		return Receipt{}, err
	}
	t.obeyed++
	var r Receipt
	err = t.act(ctx, now, a)
	if err != nil {
		r.Pending = err.Error()
	}
	r.Decision = *a.decision
	r.Decision.Evidence = nil
	t.report(now, err)
	return r, nil
}

// readyToObey takes over the pool if need be, meets what someone else has
// written, and finishes what was decided before.
func (t *Tuner) readyToObey(ctx context.Context, now time.Time) error {
	if t.control == nil {
		if err := t.begin(ctx, now); err != nil {
			return err
		}
	}
	if err := t.meetDocument(ctx, now); err != nil {
		return err
	}
	if c := t.pending.change; c != nil && c.trial != nil {
		t.dropTrial(now)
	}
	return t.carryOut(ctx, now)
}

// take the turn to change the pool, and yield it.
func (t *Tuner) take(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the pool's turn: %w", context.Cause(ctx))
	}
}

func (t *Tuner) yield() { <-t.turn }
