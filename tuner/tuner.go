package tuner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
)

// Documents is where a pool's document and the tuner's checkpoint live; every
// store in package store has it.
type Documents interface {
	Load(ctx context.Context) (*store.Document, error)
	Swap(ctx context.Context, next *store.Document) error
	LoadCheckpoint(ctx context.Context) ([]byte, error)
	SaveCheckpoint(ctx context.Context, checkpoint []byte) error
}

// Journal keeps the records of decisions.
type Journal interface {
	Append(store.Decision) error
}

// Options are what a Tuner needs. All fields are required.
type Options struct {
	Settings   Settings
	Prometheus Prometheus
	// QueryTimeout bounds each query.
	QueryTimeout time.Duration
	Documents    Documents
	Journal      Journal
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

// Tuner runs the loop of one pool. Step is called from one goroutine; Status
// from any.
type Tuner struct {
	o        Options
	log      *slog.Logger
	metrics  *metrics
	observer *observer
	calendar *calendar

	control  *controller
	document *store.Document // as last seen or written
	pending  *change         // decided, not yet published
	last     time.Time       // end of the last window
	seq      uint64

	mu     sync.Mutex
	status Status
}

// New checks the settings and builds the loop; it does no I/O.
func New(o Options) (*Tuner, error) {
	if err := o.Settings.Validate(); err != nil {
		return nil, err
	}
	if o.Prometheus == nil || o.Documents == nil || o.Journal == nil || o.Logger == nil || o.Registerer == nil || o.QueryTimeout <= 0 {
		return nil, errors.New("tuner: every option is required")
	}
	calendar, err := newCalendar(o.Settings.Schedule)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer, o.Settings.Name)
	if err != nil {
		return nil, err
	}
	return &Tuner{
		o: o, log: o.Logger.With("pool", o.Settings.Name), metrics: m, calendar: calendar,
		observer: &observer{prom: timed{o.Prometheus, o.QueryTimeout}, settings: o.Settings},
		status:   Status{Pool: o.Settings.Name, Mode: o.Settings.Mode},
	}, nil
}

// Interval is how often Step wants to be called.
func (t *Tuner) Interval() time.Duration { return t.o.Settings.step() }

// Step takes one turn of the loop at now: observe, judge, propose, publish. An
// error means that nothing was decided, and why; the next step tries again.
func (t *Tuner) Step(ctx context.Context, now time.Time) error {
	err := t.step(ctx, now)
	t.metrics.step(now, err)
	t.report(now, err)
	return err
}

func (t *Tuner) step(ctx context.Context, now time.Time) error {
	if t.control == nil {
		if err := t.begin(ctx, now); err != nil {
			return err
		}
	}
	if err := t.meetDocument(ctx, now); err != nil {
		return err
	}
	if t.pending != nil {
		return t.publish(ctx, now)
	}
	from, ok := t.nextWindow(now)
	if !ok {
		return nil
	}
	sample := t.observer.sample(ctx, from, now)
	t.metrics.sample(sample, t.o.Settings.Objective)
	return t.act(ctx, now, t.control.next(observation{sample: sample, open: t.calendar.open(now)}))
}

// nextWindow is the stretch since the last step. After a pause, or a clock that
// jumped, it is one interval: a long window would average over a past that
// nobody watched.
func (t *Tuner) nextWindow(now time.Time) (from time.Time, ok bool) {
	from, step := t.last, t.Interval()
	t.last = now
	if d := now.Sub(from); d <= 0 || d > 2*step {
		from = now.Add(-step)
	}
	return from, true
}

// act carries out what the controller asked for. The record is written before
// the change: a change without a record must not exist.
func (t *Tuner) act(ctx context.Context, now time.Time, a action) error {
	enforce := t.o.Settings.Mode == Enforce
	if a.change != nil && enforce {
		t.pending = a.change
		t.control.awaiting(t.document.Revision+1, now)
	}
	if a.decision != nil {
		if err := t.record(now, a.decision, a.change != nil && enforce); err != nil {
			return err
		}
	}
	if t.pending == nil {
		return nil
	}
	return t.publish(ctx, now)
}

func (t *Tuner) record(now time.Time, d *store.Decision, changes bool) error {
	t.seq++
	d.ID = store.NewID(now, t.seq)
	if changes {
		d.Revision = t.document.Revision + 1
	}
	t.metrics.decisions.WithLabelValues(string(d.Kind)).Inc()
	t.log.Info("decision", "kind", d.Kind, "id", d.ID, "from", d.From.String(), "to", d.To.String(), "revision", d.Revision, "reason", d.Reason)
	t.remember(d)
	if err := t.o.Journal.Append(*d); err != nil {
		return fmt.Errorf("recording decision %s (nothing was published): %w", d.ID, err)
	}
	return nil
}

// publish writes the pending change, and keeps it pending on failure. A change
// that meets a document someone else wrote is dropped by meetDocument.
func (t *Tuner) publish(ctx context.Context, now time.Time) error {
	next := &store.Document{
		APIVersion: store.APIVersion, Pool: t.o.Settings.Name, Revision: t.document.Revision + 1,
		UpdatedAt: now, Baseline: t.pending.baseline, Trial: t.pending.trial,
	}
	if err := t.o.Documents.Swap(ctx, next); err != nil {
		t.metrics.publishFailures.Inc()
		return fmt.Errorf("publishing revision %d: %w", next.Revision, err)
	}
	t.document, t.pending = next, nil
	t.control.awaiting(next.Revision, now)
	t.metrics.published(next)
	return t.saveCheckpoint(ctx)
}

// Run steps until ctx ends, at the pace of a ticker's channel. Errors are logged
// and counted; none stops the loop.
func (t *Tuner) Run(ctx context.Context, ticks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
			if err := t.Step(ctx, now); err != nil && ctx.Err() == nil {
				t.log.Warn("step failed; the incumbent stays", "err", err)
			}
		}
	}
}
