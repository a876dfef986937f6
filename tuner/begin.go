package tuner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// checkpoint is what a new tuner on another node needs to go on: what the search
// has learned. A trial is not resumed: its samples are gone, and it is ended.
type checkpoint struct {
	Version   int           `json:"version"`
	Revision  int64         `json:"revision"`
	LastGood  store.Params  `json:"lastGood"`
	Climber   climber       `json:"climber"`
	Tried     []triedRecord `json:"tried,omitempty"`
	Memory    memory        `json:"memory,omitempty"`
	Cooldown  time.Time     `json:"cooldown"`
	Aborts    int           `json:"aborts"`
	ShedAfter time.Time     `json:"shedAfter"`
	Sheds     int           `json:"sheds"`
	Sequence  uint64        `json:"sequence"`
}

type triedRecord struct {
	Params store.Params `json:"params"`
	Times  int          `json:"times"`
	Until  time.Time    `json:"until"`
}

const checkpointVersion = 1

// begin takes over the pool: the document first, then the checkpoint, and only
// then is anything written.
func (t *Tuner) begin(ctx context.Context, now time.Time) error {
	document, err := t.o.Documents.Load(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
		document = &store.Document{APIVersion: store.APIVersion, Pool: t.o.Settings.Name, Baseline: t.o.Settings.Initial}
	case err != nil:
		return fmt.Errorf("loading the parameter document (it is never overwritten unread; repair or remove it): %w", err)
	}
	raw, err := t.o.Documents.LoadCheckpoint(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("loading the checkpoint: %w", err)
	}
	incumbent, clamped := t.o.Settings.Bounds.Clamp(document.Baseline)
	control := newController(t.o.Settings, incumbent, now)
	if len(raw) > 0 {
		if err := t.resume(control, raw, document); err != nil {
			return err
		}
	}
	t.document, t.control = document, control
	return t.takeOver(ctx, now, clamped)
}

// takeOver publishes what the start requires: a first document, the end of a
// trial that an earlier tuner left, or a baseline brought within bounds.
func (t *Tuner) takeOver(ctx context.Context, now time.Time, clamped bool) error {
	d, c := t.document, t.control
	c.awaiting(d.Revision, now)
	kind, reason := store.KindAdopt, fmt.Sprintf("took over %s as the incumbent", c.incumbent)
	publish := false
	switch {
	case d.Revision == 0:
		reason, publish = fmt.Sprintf("no document existed: starting from the initial %s", c.incumbent), true
	case d.Trial != nil:
		kind, publish = store.KindReconcile, true
		reason = fmt.Sprintf("ended trial %s of %s that an earlier tuner left; %s stays", d.Trial.ID, d.Trial.Candidate, c.incumbent)
	case clamped:
		reason, publish = fmt.Sprintf("the document's %s lies outside bounds: starting from %s", d.Baseline, c.incumbent), true
	}
	a := c.decide(kind, Sample{To: now, State: Unknown}, c.incumbent, reason)
	a.decision.Evidence, a.decision.From = nil, d.Baseline
	if publish {
		a.change = &change{baseline: c.incumbent}
	}
	return t.act(ctx, now, a)
}

func (t *Tuner) resume(c *controller, raw []byte, d *store.Document) error {
	var k checkpoint
	if err := json.Unmarshal(raw, &k); err != nil {
		return fmt.Errorf("reading the checkpoint (remove it to start the search afresh): %w", err)
	}
	if k.Version != checkpointVersion {
		return fmt.Errorf("reading the checkpoint: version %d is not allowed, want %d; remove it to start the search afresh", k.Version, checkpointVersion)
	}
	t.seq = k.Sequence
	c.memory, c.cooldown, c.aborts, c.shedAt, c.sheds = k.Memory, k.Cooldown, k.Aborts, k.ShedAfter, k.Sheds
	// Someone else has written since: what failed against another incumbent
	// says nothing.
	if k.Revision != d.Revision {
		return nil
	}
	c.lastGood, c.climber = k.LastGood, k.Climber
	c.climber.Step = min(max(c.climber.Step, 1), t.o.Settings.Search.MaxStep)
	c.climber.Tried = map[store.Params]failed{}
	for _, r := range k.Tried {
		c.climber.Tried[r.Params] = failed{times: r.Times, until: r.Until}
	}
	return nil
}

func (t *Tuner) saveCheckpoint(ctx context.Context) error {
	c := t.control
	k := checkpoint{
		Version: checkpointVersion, Revision: t.document.Revision, LastGood: c.lastGood, Climber: c.climber,
		Memory: c.memory, Cooldown: c.cooldown, Aborts: c.aborts, ShedAfter: c.shedAt, Sheds: c.sheds, Sequence: t.seq,
	}
	for p, f := range c.climber.Tried {
		k.Tried = append(k.Tried, triedRecord{Params: p, Times: f.times, Until: f.until})
	}
	sortTried(k.Tried)
	raw, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the checkpoint: %w", err)
	}
	if err := t.o.Documents.SaveCheckpoint(ctx, append(raw, '\n')); err != nil {
		return fmt.Errorf("writing the checkpoint: %w", err)
	}
	return nil
}

// meetDocument notices a document that someone else wrote: it is respected, not
// fought.
func (t *Tuner) meetDocument(ctx context.Context, now time.Time) error {
	d, err := t.o.Documents.Load(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound) && t.document.Revision == 0:
		return nil
	case err != nil:
		return fmt.Errorf("loading the parameter document: %w", err)
	case d.Revision == t.document.Revision:
		return nil
	}
	t.pending = action{}
	former := t.control.incumbent
	t.document = d
	reason := fmt.Sprintf("someone else wrote revision %d: %s is respected as the incumbent, and tuning waits %v", d.Revision, d.Baseline, t.o.Settings.Guard.Cooldown)
	t.control.adopt(d.Baseline, d.Revision, now)
	a := t.control.decide(store.KindDrift, Sample{To: now, State: Unknown}, d.Baseline, reason)
	a.decision.From, a.decision.Evidence = former, nil
	return t.act(ctx, now, a)
}
