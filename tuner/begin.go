package tuner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// begin takes over the pool: the document first, then the checkpoint, and only
// then is anything written.
func (t *Tuner) begin(ctx context.Context, now time.Time) error {
	document, err := t.o.Documents.Load(ctx)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		return fmt.Errorf("loading the parameter document (it is never overwritten unread; repair or remove it): %w", err)
	}
	k, found, err := t.loadCheckpoint(ctx)
	if err != nil {
		return err
	}
	if missing {
		document = &store.Document{APIVersion: store.APIVersion, Pool: t.o.Settings.Name, Baseline: t.o.Settings.Initial}
		if found {
			// A lost document is written again, above the revision it had.
			document.Baseline, document.Revision = k.Incumbent, k.Revision
		}
	}
	incumbent, _ := t.o.Settings.clamp(document.Baseline)
	control := newController(t.o.Settings, incumbent, now)
	if found {
		t.seq = k.Sequence
		k.restore(control, document)
		control.exposed = control.exposed.ended(k.Candidate, document, now)
	}
	t.document, t.control = document, control
	return t.takeOver(ctx, now, missing)
}

// takeOver publishes what the start requires: a first document, the end of a
// trial that an earlier tuner left, or a baseline brought within bounds.
func (t *Tuner) takeOver(ctx context.Context, now time.Time, missing bool) error {
	d, c := t.document, t.control
	c.awaiting(d.Revision, now)
	c.exposed = c.exposed.until(now).left(d, now)
	kind, reason, publish := store.KindAdopt, fmt.Sprintf("took over %s of revision %d as the incumbent", c.incumbent, d.Revision), true
	switch {
	case missing && d.Revision > 0:
		reason = fmt.Sprintf("the document was lost: %s is written again, as the checkpoint has it", c.incumbent)
	case missing:
		reason = fmt.Sprintf("no document existed: starting from the initial %s", c.incumbent)
	case d.Trial != nil && t.o.Settings.Mode == Observe:
		reason = fmt.Sprintf("watching %s; trial %s of %s that an earlier tuner left is not ended in observe mode", c.incumbent, d.Trial.ID, d.Trial.Candidate)
	case d.Trial != nil:
		kind = store.KindReconcile
		reason = fmt.Sprintf("ended trial %s of %s that an earlier tuner left; %s stays", d.Trial.ID, d.Trial.Candidate, c.incumbent)
	case c.incumbent != d.Baseline:
		reason = fmt.Sprintf("the document's %s is not what bounds and search.adaptive allow: starting from %s", d.Baseline, c.incumbent)
	default:
		publish = false
	}
	t.metrics.published(d)
	a := c.decide(kind, Sample{To: now, State: Unknown}, c.incumbent, reason)
	a.decision.Evidence, a.decision.From = nil, d.Baseline
	if publish {
		a.change = &change{baseline: c.incumbent}
	}
	return t.act(ctx, now, a)
}

// meetDocument notices a document that someone else wrote: it is respected, not
// fought. Only a candidate in it is not: nobody would end its trial. One that was
// edited under its old revision is written again under a new one, which plugins
// acknowledge.
func (t *Tuner) meetDocument(ctx context.Context, now time.Time) error {
	d, err := t.o.Documents.Load(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound) && t.document.Revision == 0:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return t.rewriteDocument(ctx, now)
	case errors.Is(err, store.ErrStopped):
		return errors.Join(t.halt(ctx, now, err), err)
	case err != nil:
		return fmt.Errorf("loading the parameter document: %w", err)
	case d.Equal(t.document):
		return t.unhalt(ctx, now)
	case d.Equal(t.attempt):
		t.accept(d, now)
		t.unsaved = true
		return nil
	}
	did := "wrote"
	if d.Revision == t.document.Revision {
		did = "edited"
	}
	t.beside = t.o.Settings.Mode == Observe
	former, c := t.control.incumbent, t.control
	incumbent, _ := t.o.Settings.clamp(d.Baseline)
	t.supersede(now)
	t.attempt, t.document, t.halted = nil, d, false
	t.metrics.published(d)
	c.orders.follow(former, incumbent)
	c.adopt(incumbent, now)
	c.awaiting(d.Revision, now)
	reason := fmt.Sprintf("someone else %s revision %d: %s is respected as the incumbent, and tuning waits %v", did, d.Revision, incumbent, t.o.Settings.Guard.Cooldown)
	a := c.decide(store.KindDrift, Sample{To: now, State: Unknown}, incumbent, reason)
	a.decision.From, a.decision.Evidence = former, nil
	if d.Trial != nil || incumbent != d.Baseline || did == "edited" {
		a.change = &change{baseline: incumbent}
	}
	return t.act(ctx, now, a)
}

// rewriteDocument puts a document back that was removed: without it a plugin
// that restarts would fall back to its static configuration.
func (t *Tuner) rewriteDocument(ctx context.Context, now time.Time) error {
	c := t.control
	if t.o.Settings.Mode == Observe {
		return errors.New("the parameter document was removed; observe mode does not write it again")
	}
	t.supersede(now)
	t.document.Revision = max(t.document.Revision, c.lastSample.Plugin.Newest)
	c.adopt(c.incumbent, now)
	a := c.decide(store.KindDrift, Sample{To: now, State: Unknown}, c.incumbent, fmt.Sprintf("the parameter document was removed: %s is written again", c.incumbent))
	a.decision.Evidence, a.change = nil, &change{baseline: c.incumbent}
	return t.act(ctx, now, a)
}
