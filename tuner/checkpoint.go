package tuner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// checkpoint is what a new tuner on another node needs to go on: the incumbent
// and what the search has learned. A trial is not resumed: its samples are gone,
// and it is ended.
type checkpoint struct {
	Version   int           `json:"version"`
	Revision  int64         `json:"revision"`
	Incumbent store.Params  `json:"incumbent"`
	Climber   climber       `json:"climber"`
	Tried     []triedRecord `json:"tried,omitempty"`
	Memory    memory        `json:"memory,omitempty"`
	Cooldown  time.Time     `json:"cooldown"`
	Aborts    int           `json:"aborts"`
	ShedAfter time.Time     `json:"shedAfter"`
	Sheds     int           `json:"sheds"`
	Sequence  uint64        `json:"sequence"`
	Orders    orders        `json:"orders"`
	// Exposed is when candidates were in force.
	Exposed exposure `json:"exposed,omitempty"`
	// Candidate is the lease of the one in force as this is saved.
	Candidate *stretch `json:"candidate,omitempty"`
}

type triedRecord struct {
	Params  store.Params `json:"params"`
	Times   int          `json:"times"`
	Until   time.Time    `json:"until"`
	Aborted bool         `json:"aborted,omitempty"`
	// Predicted is the relative gain that it failed to show.
	Predicted float64 `json:"predicted,omitempty"`
	// Sense in which it was predicted: -1 fewer restores, 1 more.
	Sense sense `json:"sense,omitempty"`
}

const checkpointVersion = 1

func (t *Tuner) loadCheckpoint(ctx context.Context) (k checkpoint, found bool, err error) {
	raw, err := t.o.Documents.LoadCheckpoint(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && len(raw) == 0:
		return checkpoint{}, false, nil
	case err != nil:
		return checkpoint{}, false, fmt.Errorf("loading the checkpoint: %w", err)
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return checkpoint{}, false, fmt.Errorf("reading the checkpoint (remove it to start the search afresh): %w", err)
	}
	if k.Version != checkpointVersion {
		return checkpoint{}, false, fmt.Errorf("reading the checkpoint: version %d is not allowed, want %d; remove it to start the search afresh", k.Version, checkpointVersion)
	}
	return k, true, nil
}

// restore what the checkpoint holds. If someone else has written the document
// since, what failed against another incumbent says nothing.
func (k checkpoint) restore(c *controller, d *store.Document) {
	c.orders = k.Orders
	c.orders.follow(k.Incumbent, c.incumbent)
	c.memory, c.cooldown, c.aborts, c.shedAt, c.sheds = k.Memory, k.Cooldown, k.Aborts, k.ShedAfter, k.Sheds
	c.exposed = k.Exposed
	if k.Incumbent != d.Baseline {
		return
	}
	c.climber = k.Climber
	c.climber.Step = min(max(c.climber.Step, 1), c.settings.Search.MaxStep)
	c.climber.Tried = map[store.Params]failed{}
	for _, r := range k.Tried {
		c.climber.Tried[r.Params] = failed{times: r.Times, until: r.Until, aborted: r.Aborted, predicted: r.Predicted, sense: r.Sense}
	}
}

// saveCheckpoint writes what a successor needs; in observe mode that is nothing
// but a pause, and beside a tuner that writes not even that: it would be paused by
// its next start, and what it saves meanwhile could be lost.
func (t *Tuner) saveCheckpoint(ctx context.Context) error {
	if t.beside {
		return nil
	}
	if t.o.Settings.Mode == Observe {
		return t.saveOrders(ctx)
	}
	return t.writeCheckpoint(ctx, t.checkpoint())
}

// saveOrders puts the operator's orders into the checkpoint that is there, and
// leaves the rest of it to the tuner that wrote it.
func (t *Tuner) saveOrders(ctx context.Context) error {
	k, found, err := t.loadCheckpoint(ctx)
	pause := t.control.orders.Pause
	switch {
	case err != nil:
		return err
	case !found && pause == nil, found && samePause(k.Orders.Pause, pause):
		return nil
	case !found:
		k = t.checkpoint()
	}
	k.Orders.Pause = pause
	return t.writeCheckpoint(ctx, k)
}

func (t *Tuner) checkpoint() checkpoint {
	c := t.control
	k := checkpoint{
		Version: checkpointVersion, Revision: t.document.Revision, Incumbent: c.incumbent, Climber: c.climber,
		Memory: c.memory, Cooldown: c.cooldown, Aborts: c.aborts, ShedAfter: c.shedAt, Sheds: c.sheds, Sequence: t.seq,
		Orders:  c.orders,
		Exposed: c.exposed,
	}
	if d := t.document; d.Trial != nil && d.Trial.Assignment.Mode != store.AssignNone {
		k.Candidate = &stretch{d.UpdatedAt, d.Trial.ExpiresAt}
	}
	for p, f := range c.climber.Tried {
		k.Tried = append(k.Tried, triedRecord{Params: p, Times: f.times, Until: f.until, Aborted: f.aborted, Predicted: f.predicted, Sense: f.sense})
	}
	slices.SortFunc(k.Tried, func(a, b triedRecord) int { return strings.Compare(a.Params.String(), b.Params.String()) })
	return k
}

func (t *Tuner) writeCheckpoint(ctx context.Context, k checkpoint) error {
	raw, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the checkpoint: %w", err)
	}
	if err := t.o.Documents.SaveCheckpoint(ctx, append(raw, '\n')); err != nil {
		return fmt.Errorf("writing the checkpoint: %w", err)
	}
	return nil
}
