package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// process is a tuner that can be killed and started again. What outlives it is
// the journal and what is in the store.
type process struct {
	w       *world
	name    string
	offset  time.Duration      // of its clock
	tuner   *tuner.Tuner       // nil while it is down
	due     time.Time          // next step, or start
	err     error              // of the last step
	kill    point              // armed; empty is none
	down    time.Duration      // how long, when it is killed
	cancel  context.CancelFunc // ends the step
	stop    bool               // armed: a shutdown in the next query
	journal *journal
	store   tuner.Documents // of this start
	starts  int

	spoiled bool // an answer of this step lacked data
}

// killed is what a killed tuner panics with.
type killed struct{}

// at dies here if that was asked for.
func (p *process) at(where point) {
	if p.kill == where {
		p.kill = ""
		panic(killed{})
	}
}

// step starts the tuner if it is down, or lets it take one turn.
func (p *process) step() error {
	if p.tuner == nil {
		if err := p.start(); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p.cancel = stop
	p.spoiled, p.err = false, nil
	p.due = p.w.now.Add(p.tuner.Interval())
	dead := p.guard(func() { p.err = p.tuner.Step(ctx, p.clock()) })
	if dead || ctx.Err() != nil {
		return p.die()
	}
	if p.err != nil {
		p.w.trace("%s: step: %v", p.name, p.err)
	}
	p.w.watch.stepped(p)
	return nil
}

// command gives the tuner an order, as the API does between two steps.
func (p *process) command(c tuner.Command) error {
	if p.tuner == nil {
		return nil
	}
	p.spoiled = false
	dead := p.guard(func() {
		r, err := p.tuner.Obey(context.Background(), p.clock(), p.w.parts.hears(c))
		p.w.trace("%s: told to %s: %v %s", p.name, c.Verb, err, r.Pending)
		if err == nil {
			p.w.watch.obeyed(p, c, r.Pending == "")
		}
	})
	if dead {
		return p.die()
	}
	return nil
}

// guard tells whether the tuner was killed in what it did.
func (p *process) guard(do func()) (dead bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			dead = true
		default:
			p.w.watch.violate("tuner panics", "%s: %v", p.name, r)
			dead = true
		}
	}()
	do()
	return false
}

func (p *process) clock() time.Time { return p.w.now.Add(p.offset) }

func (p *process) start() error {
	if err := p.journal.open(); err != nil {
		return err
	}
	p.starts++
	s, err := p.w.documents(fmt.Sprintf("%s-%d", p.name, p.starts), p.w.parts.wire(p.wire))
	if err != nil {
		return err
	}
	p.store = s
	t, err := tuner.New(tuner.Options{
		Settings: p.w.settings, Prometheus: questions{p}, QueryTimeout: time.Minute, Documents: &documents{p},
		Journal: p.w.parts.journal(p.journal), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.tuner = t
	return nil
}

// die leaves nothing but what is stored.
func (p *process) die() error {
	p.w.trace("%s: killed, down for %v", p.name, p.down)
	p.tuner, p.due = nil, p.w.now.Add(p.down)
	return p.journal.close()
}

// questions is a tuner's way to Prometheus.
type questions struct{ p *process }

// Query implements tuner.Prometheus.
func (q questions) Query(ctx context.Context, text string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	p := q.p
	// Killed or shut down here is the same: nothing is under way that could be torn.
	if p.stop || p.kill == "before query" {
		p.stop, p.kill = false, ""
		p.cancel()
		return nil, nil, nil, ctx.Err()
	}
	r := p.w.ask(p, query{ctx: ctx, text: text, at: at, rng: p.w.rng})
	if p.kill == "after query" {
		p.kill = ""
		p.cancel()
	}
	return r.value, r.warnings, nil, r.err
}

// documents is a tuner's way to the store.
type documents struct{ p *process }

// Load implements tuner.Documents, as the methods below do.
func (d *documents) Load(ctx context.Context) (*store.Document, error) {
	d.p.at("before load")
	if err := d.p.w.storeError(false); err != nil {
		return nil, err
	}
	return d.p.store.Load(ctx)
}

func (d *documents) Swap(ctx context.Context, next *store.Document) error {
	p := d.p
	p.at("before publish")
	if p.w.hits(storeConflict) {
		p.w.foreign(false)
	}
	if err := p.w.storeError(true); err != nil {
		return err
	}
	if err := p.w.publish(ctx, p, next); err != nil {
		return err
	}
	p.at("after publish")
	if p.w.hits(storeUncertain) {
		return errors.New("connection reset by peer")
	}
	return nil
}

func (d *documents) LoadCheckpoint(ctx context.Context) ([]byte, error) {
	if d.p.w.hits(storeDown) {
		return nil, errUnreachable
	}
	return d.p.store.LoadCheckpoint(ctx)
}

func (d *documents) SaveCheckpoint(ctx context.Context, raw []byte) error {
	p := d.p
	p.at("before checkpoint")
	if err := p.w.storeError(true); err != nil && !errors.Is(err, store.ErrStopped) {
		return err
	}
	if err := p.store.SaveCheckpoint(ctx, raw); err != nil {
		return err
	}
	p.w.watch.checkpoints = append(p.w.watch.checkpoints, raw)
	p.at("after checkpoint")
	if p.w.hits(storeUncertain) {
		return errors.New("connection reset by peer")
	}
	return nil
}

var errUnreachable = errors.New("connect: no route to host")

// storeError is what a store in trouble says; nil is none.
func (w *world) storeError(write bool) error {
	switch {
	case w.on(storeStopped):
		return fmt.Errorf("the kill switch is there: %w", store.ErrStopped)
	case w.hits(storeDown):
		return errUnreachable
	case write && w.hits(storeReadOnly):
		return syscall.EROFS
	case write && w.hits(storeFull):
		return syscall.ENOSPC
	}
	return nil
}

// journal keeps a process's records, in a history on disk if the plan says so.
type journal struct {
	p       *process
	path    string // empty in memory
	file    *store.History
	records []store.Decision
}

func newJournal(p *process, dir string) *journal {
	j := &journal{p: p}
	if dir != "" {
		j.path = filepath.Join(dir, p.name+".db")
	}
	return j
}

func (j *journal) open() (err error) {
	if j.path == "" {
		return nil
	}
	j.file, err = store.OpenHistory(store.HistoryOptions{Path: j.path, Now: func() time.Time { return j.p.w.now }})
	return err
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	return f.Close()
}

// Append implements tuner.Journal.
func (j *journal) Append(d store.Decision) error {
	j.p.at("before record")
	if j.p.w.hits(journalDown) {
		return syscall.EIO
	}
	if err := j.keep(d); err != nil {
		return err
	}
	j.records = append(j.records, d)
	j.p.w.recorded(j.p, d)
	j.p.at("after record")
	return nil
}

func (j *journal) keep(d store.Decision) error {
	if j.file != nil {
		return j.file.Append(d)
	}
	if err := d.Validate(); err != nil {
		return err
	}
	for _, other := range j.records {
		if other.ID == d.ID {
			return store.ErrConflict
		}
	}
	return nil
}
