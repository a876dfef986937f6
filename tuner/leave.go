package tuner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Leave ends a trial because nobody will step the pool from now on: without it the
// candidate would stay in force until it expires. The incumbent stays, why goes into
// the record. A pool that is merely handed over need not be left: whoever takes it
// over ends the trial.
func (t *Tuner) Leave(ctx context.Context, now time.Time, why string) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.yield()
	if t.control == nil {
		return nil // it was never taken over
	}
	if _, err := t.o.Documents.Load(ctx); errors.Is(err, store.ErrNotFound) {
		return nil // it is gone, and its trial with it
	}
	now = now.Round(0)
	if err := t.readyToObey(ctx, now); err != nil {
		return fmt.Errorf("leaving the pool: %w", err)
	}
	if t.control.trial == nil {
		return nil
	}
	err := t.act(ctx, now, t.control.finish(Sample{From: now, To: now, State: Unknown}, cancelled, nil, why))
	t.report(now, err)
	return err
}
