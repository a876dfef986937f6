package tuner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

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

// Options are what a Tuner needs. All fields but Tracer are required.
type Options struct {
	Settings   Settings
	Prometheus Prometheus
	// QueryTimeout bounds each query.
	QueryTimeout time.Duration
	Documents    Documents
	Journal      Journal
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	// Tracer opens a span for each step and its parts; nil opens none. It must not
	// wait for whoever takes the spans.
	Tracer trace.Tracer
}

// Tuner runs the loop of one pool. Step is called from one goroutine; Obey, Status
// and Timeline from any.
type Tuner struct {
	o        Options
	log      *slog.Logger
	metrics  *metrics
	tracer   tracer
	observer *observer
	calendar *calendar

	// turn is held by whoever reads or changes what follows: a step, but not while
	// it waits for Prometheus, or a command. obeyed counts the commands.
	turn     chan struct{}
	obeyed   int
	control  *controller
	document *store.Document   // as last seen or written
	pending  action            // decided at since, not yet recorded or published
	owed     []*store.Decision // published, superseded, and not yet recorded
	since    time.Time
	attempt  *store.Document // whose writing failed, or seemed to
	unsaved  bool            // the checkpoint is out of date
	halted   bool            // by the store's kill switch
	beside   bool            // another tuner: it writes while this one observes
	last     time.Time       // end of the last window
	seq      uint64

	mu       sync.Mutex
	status   Status
	timeline timeline
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
	m, err := newMetrics(o.Registerer, o.Settings.Name, o.Settings.Mode)
	if err != nil {
		return nil, err
	}
	m.setBounds(o.Settings.Bounds)
	return &Tuner{
		o: o, log: o.Logger.With("pool", o.Settings.Name), metrics: m, calendar: calendar,
		turn: make(chan struct{}, 1), tracer: newTracer(o.Tracer, o.Settings),
		observer: &observer{prom: timed{o.Prometheus, o.QueryTimeout}, settings: o.Settings},
		status:   Status{Pool: o.Settings.Name, Mode: o.Settings.Mode},
	}, nil
}

// Interval is how often Step wants to be called.
func (t *Tuner) Interval() time.Duration { return t.o.Settings.step() }

// Step takes one turn of the loop at now: observe, judge, propose, publish. An
// error means that nothing was decided, and why; the next step tries again.
func (t *Tuner) Step(ctx context.Context, now time.Time) error {
	now = now.Round(0) // wall clock: documents and records are compared across processes
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.yield()
	ctx, span := t.tracer.start(ctx, spanStep)
	err := t.step(ctx, now)
	end(span, err)
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
	if now.Before(t.last) {
		t.control.clockWentBack(now, t.last.Sub(now))
		t.last = now // a step that ends early must not go back once more
	}
	if err := t.meetDocument(ctx, now); err != nil {
		return err
	}
	if t.pending != (action{}) {
		return t.carryOut(ctx, now)
	}
	// An observer whose pause cannot be saved goes on: whoever gave it was told.
	if err := t.save(ctx); err != nil && t.o.Settings.Mode != Observe {
		return err
	}
	sample, obeyed := t.observe(ctx, now)
	if ctx.Err() != nil {
		// Cut off by a shutdown, its queries would look like missing data.
		return fmt.Errorf("observing: %w", ctx.Err())
	}
	t.metrics.sample(sample, t.o.Settings.Objective)
	t.draw(sample)
	if obeyed {
		return nil // what the sample shows was in force before the command
	}
	if err := t.act(ctx, now, t.decide(ctx, now, sample)); err != nil {
		return err
	}
	return t.refreshCosts(ctx, now)
}

// observe lets commands have the turn while Prometheus answers, and tells whether
// there was one.
func (t *Tuner) observe(ctx context.Context, now time.Time) (s Sample, obeyed bool) {
	from, before := t.windowStart(now), t.obeyed
	t.yield()
	ctx, span := t.tracer.start(ctx, spanObserve)
	s = t.observer.sample(ctx, from, now)
	span.SetAttributes(attribute.String("kvtuner.sample", string(s.State)))
	end(span, ctx.Err())
	t.turn <- struct{}{}
	return s, t.obeyed != before
}

// decide what a sample calls for.
func (t *Tuner) decide(ctx context.Context, now time.Time, s Sample) action {
	_, span := t.tracer.start(ctx, spanDecide)
	defer span.End()
	pair := 2 * t.o.Settings.Trial.Block
	a := t.control.next(observation{sample: s, open: t.calendar.open(now), room: t.calendar.open(now.Add(pair))})
	describe(a.decision, span)
	return a
}

// windowStart is the end of the last window. After a pause, or a clock that
// jumped, it is one interval ago: a long window would average over a past that
// nobody watched.
func (t *Tuner) windowStart(now time.Time) time.Time {
	from, step := t.last, t.Interval()
	t.last = now
	if d := now.Sub(from); d <= 0 || d > 2*step {
		from = now.Add(-step)
	}
	return from
}

// act takes on what the controller asked for.
func (t *Tuner) act(ctx context.Context, now time.Time, a action) error {
	t.pending, t.since = t.prepare(now, a), now
	return t.carryOut(ctx, now)
}

// prepare numbers what an action writes.
func (t *Tuner) prepare(now time.Time, a action) action {
	if t.o.Settings.Mode == Observe {
		a.change = nil
	}
	if a.change != nil {
		t.control.awaiting(t.document.Revision+1, now)
	}
	if d := a.decision; d != nil {
		t.seq++
		d.ID = store.NewID(now, t.seq)
		if a.change != nil {
			d.Revision = t.document.Revision + 1
		}
	}
	return a
}

// carryOut records the pending decision, then publishes the pending change: a
// change without a record must not exist. The exception is a change that only
// takes a candidate away: harm ends first. What fails stays pending, and nothing
// new is decided before it is done. It is not torn by a shutdown.
func (t *Tuner) carryOut(ctx context.Context, now time.Time) (err error) {
	if t.pending == (action{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	turn := trace.SpanFromContext(ctx)
	ctx, span := t.tracer.start(ctx, spanPublish)
	t.dropStaleTrial(now)
	decision := t.pending.decision
	defer func() {
		describe(decision, span, turn)
		end(span, err)
	}()
	steps := []func(context.Context, time.Time) error{t.recordPending, t.publishPending}
	if t.onlyWithdraws() {
		steps = []func(context.Context, time.Time) error{t.publishPending, t.recordPending}
	}
	for _, step := range steps {
		if err := step(ctx, now); err != nil {
			return err
		}
	}
	t.unsaved = true
	return t.save(ctx)
}

// save the checkpoint if something has changed since it was last saved.
func (t *Tuner) save(ctx context.Context) error {
	if !t.unsaved {
		return nil
	}
	if err := t.saveCheckpoint(ctx); err != nil {
		return err
	}
	t.unsaved = false
	return nil
}

// writeTimeout bounds the writes of one step.
const writeTimeout = 5 * time.Second

// onlyWithdraws tells that the pending change does nothing but end a trial.
func (t *Tuner) onlyWithdraws() bool {
	c := t.pending.change
	return c != nil && c.trial == nil && t.document.Trial != nil && c.baseline == t.document.Baseline
}

// dropStaleTrial turns a block that could not be published in time into the end
// of its trial: what spoke for it is out of date. A trial whose start was not even
// recorded has not been.
func (t *Tuner) dropStaleTrial(now time.Time) {
	c := t.pending.change
	if c == nil || c.trial == nil || now.Sub(t.since).Abs() <= 2*t.Interval() {
		return
	}
	t.dropTrial(now)
}

// dropTrial turns a pending block into the end of its trial. A trial whose start
// was not even recorded has not been.
func (t *Tuner) dropTrial(now time.Time) {
	if t.pending.decision != nil {
		t.control.leaveTrial(now)
		t.pending = action{}
		return
	}
	t.pending = t.prepare(now, t.control.abandon(now))
}

// supersede what is pending by something new. A change that was published is owed
// its record, and a candidate whose end was not has run until now.
func (t *Tuner) supersede(now time.Time) {
	switch {
	case t.pending.change != nil:
		t.control.exposed = t.control.exposed.late(t.since, t.document, &store.Document{}, now)
	case t.pending.decision != nil:
		t.owed = append(t.owed, t.pending.decision)
	}
	t.pending = action{}
}

// recordPending writes the records that are owed, then that of the pending decision.
func (t *Tuner) recordPending(_ context.Context, now time.Time) error {
	for len(t.owed) > 0 {
		if err := t.enter(now, t.owed[0]); err != nil {
			return err
		}
		t.owed = t.owed[1:]
	}
	d := t.pending.decision
	if d == nil {
		return nil
	}
	if err := t.enter(now, d); err != nil {
		return err
	}
	t.pending.decision = nil
	return nil
}

func (t *Tuner) enter(now time.Time, d *store.Decision) error {
	if err := t.record(now, d); err != nil {
		return fmt.Errorf("recording decision %s: %w", d.ID, err)
	}
	t.announce(d)
	return nil
}

// publishPending writes the pending change. One that meets a document someone
// else wrote is dropped by meetDocument.
func (t *Tuner) publishPending(ctx context.Context, now time.Time) error {
	c := t.pending.change
	if c == nil {
		return nil
	}
	next := &store.Document{
		APIVersion: store.APIVersion, Pool: t.o.Settings.Name, Revision: t.document.Revision + 1,
		UpdatedAt: now.UTC(), Baseline: c.baseline, Trial: c.trial,
	}
	next.Costs = t.costs(next, now)
	return t.write(ctx, next, now)
}

// write a document.
func (t *Tuner) write(ctx context.Context, next *store.Document, now time.Time) error {
	t.attempt = next
	if err := t.o.Documents.Swap(ctx, next); err != nil {
		t.metrics.publishFailures.Inc()
		return fmt.Errorf("publishing revision %d: %w", next.Revision, err)
	}
	t.accept(next, now)
	tellRevision(ctx, next.Revision)
	return nil
}

// accept a document that this tuner has written. One that no pending change asked
// for brings new costs only, and leaves the parameters in force.
func (t *Tuner) accept(d *store.Document, now time.Time) {
	t.control.orders.follow(t.document.Baseline, d.Baseline)
	t.control.exposed = t.control.exposed.late(t.since, t.document, d, now)
	if t.pending.change == nil {
		t.control.revision = d.Revision
	} else {
		t.control.awaiting(d.Revision, now)
	}
	t.document, t.attempt, t.pending.change = d, nil, nil
	t.metrics.published(d)
}

// record appends a decision to the journal. A tuner that was killed in this very
// second may have used the same ID; the next free one is taken then. A record
// that the journal finds impossible, too large say, goes in without its evidence.
func (t *Tuner) record(now time.Time, d *store.Decision) error {
	const attempts = 100
	for n := 1; ; n++ {
		err := t.o.Journal.Append(*d)
		switch {
		case errors.Is(err, store.ErrInvalid) && d.Evidence != nil:
			t.log.Error("the evidence of a decision could not be recorded", "id", d.ID, "err", err)
			d.Evidence = nil
		case errors.Is(err, store.ErrConflict) && n < attempts:
			t.seq++
			d.ID = store.NewID(now, t.seq)
		default:
			return err
		}
	}
}

// announce tells log, metrics and status of a recorded decision.
func (t *Tuner) announce(d *store.Decision) {
	t.metrics.decisions.WithLabelValues(string(d.Kind)).Inc()
	t.log.Info("decision", "kind", d.Kind, "id", d.ID, "from", d.From.String(), "to", d.To.String(), "revision", d.Revision, "reason", d.Reason)
	t.remember(d)
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
