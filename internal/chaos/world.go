package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// world is one schedule under way.
type world struct {
	plan     plan
	parts    parts
	settings tuner.Settings // as the tuners have them
	rng      *rand.Rand     // noise
	dir      string         // empty in memory
	out      io.Writer      // of the trace; nil is none

	now      time.Time
	clock    time.Duration // of the machines, less now
	pool     *pool
	replicas []*replica
	made     int // replicas
	scraper  *scraper
	scrapeAt time.Time
	medium   medium
	version  int // of what the medium holds
	tuners   []*process
	started  int // tuners
	active   []*strike
	waiting  []fault
	watch    *watch
}

// strike is a fault that has begun, and what it struck.
type strike struct {
	fault
	began   time.Time
	engine  *engine
	replica *replica
	tuner   *process
}

// parts lets a test replace a part by one with a bug.
type parts struct {
	settings func(*tuner.Settings)
	journal  func(tuner.Journal) tuner.Journal
	publish  func(*store.Document) *store.Document // nil drops the write
	apply    func(*store.Document) *store.Document
	answer   func(query, result) result
	wire     func(roundTrip) roundTrip         // to the API server
	hears    func(tuner.Command) tuner.Command // what a tuner does of an order
}

func (p parts) withDefaults() parts {
	if p.settings == nil {
		p.settings = func(*tuner.Settings) {}
	}
	if p.journal == nil {
		p.journal = func(j tuner.Journal) tuner.Journal { return j }
	}
	if p.publish == nil {
		p.publish = func(d *store.Document) *store.Document { return d }
	}
	if p.apply == nil {
		p.apply = func(d *store.Document) *store.Document { return d }
	}
	if p.answer == nil {
		p.answer = func(_ query, r result) result { return r }
	}
	if p.hears == nil {
		p.hears = func(c tuner.Command) tuner.Command { return c }
	}
	if p.wire == nil {
		p.wire = func(f roundTrip) roundTrip { return f }
	}
	return p
}

func newWorld(p plan, replaced parts, out io.Writer) (w *world, err error) {
	w = &world{
		plan: p, parts: replaced.withDefaults(), settings: p.settings, out: out, now: p.start, scrapeAt: p.start,
		rng: rand.New(rand.NewPCG(p.seed, 1)), scraper: newScraper(), waiting: p.faults,
	}
	w.parts.settings(&w.settings)
	w.watch = newWatch(w)
	w.medium = newMemory()
	if p.onDisk {
		if w.dir, err = os.MkdirTemp("", "kvtuner-chaos-"); err != nil {
			return nil, err
		}
		if w.medium, err = newFile(w.dir); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if p.inCluster {
		if w.medium, err = newCluster(); err != nil {
			return nil, err
		}
	}
	w.pool = newPool(p.load, w.rng, w.now)
	for range p.replicas {
		if _, err := w.addReplica(0); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	w.addTuner()
	return w, nil
}

func (w *world) close() error {
	var errs []error
	for _, p := range w.tuners {
		errs = append(errs, p.journal.close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

func (w *world) addTuner() *process {
	p := &process{w: w, name: fmt.Sprintf("tuner-%d", w.started), offset: w.clock, due: w.now}
	p.journal = newJournal(p, w.dir)
	w.started++
	w.tuners = append(w.tuners, p)
	return p
}

func (w *world) addReplica(skew time.Duration) (*replica, error) {
	r, err := newReplica(fmt.Sprintf("epp-%d", w.made), w.clock+skew, func() time.Time { return w.now })
	if err != nil {
		return nil, err
	}
	r.behind = time.Duration(w.rng.IntN(4)) * tick
	r.baselineSince = w.now
	w.made++
	w.replicas = append(w.replicas, r)
	return r, nil
}

// live lets the schedule happen; an error is one of the harness itself.
func (w *world) live() error {
	for end := w.plan.start.Add(w.plan.length); w.now.Before(end); {
		if err := w.pass(); err != nil {
			return err
		}
	}
	if err := w.relieve(); err != nil {
		return err
	}
	for end := w.now.Add(calm); w.now.Before(end); {
		if err := w.pass(); err != nil {
			return err
		}
	}
	w.watch.finish()
	return nil
}

// pass lets one tick go by.
func (w *world) pass() error {
	w.now = w.now.Add(tick)
	if err := w.strikeAndLift(); err != nil {
		return err
	}
	w.serve()
	w.read()
	if err := w.scrape(); err != nil {
		return err
	}
	for _, p := range w.tuners {
		if w.now.Before(p.due) {
			continue
		}
		if err := p.step(); err != nil {
			return err
		}
	}
	w.watch.check()
	return w.restartDeposed()
}

// serve the requests of a tick, each decided by one of the replicas.
func (w *world) serve() {
	w.pool.stress = w.stress()
	for _, e := range w.pool.engines {
		if e.frozen {
			continue
		}
		for _, r := range w.replicas {
			r.policy.Observe(e.name, int(e.waiting), w.now.Add(r.skew))
		}
		w.pool.serve(e, tick, w.decide)
	}
}

func (w *world) decide(r *plugin.Request) answered {
	policy := w.replicas[w.rng.IntN(len(w.replicas))].policy
	a := answered{policy, policy.Decide(r)}
	w.watch.decided(r, a.decision)
	return a
}

// read lets the replicas see what the store holds.
func (w *world) read() {
	for _, r := range w.replicas {
		if w.on(storeStopped) && !r.stuck {
			r.stop()
			w.watch.replica(r)
			continue
		}
		if r.version == w.version || r.stuck || w.hits(storeDown) {
			continue
		}
		if r.due.IsZero() {
			r.due = w.now.Add(r.behind)
		}
		if w.now.Before(r.due) {
			continue
		}
		r.version, r.due = w.version, time.Time{}
		w.take(r)
	}
}

func (w *world) take(r *replica) {
	d, err := w.medium.Load(context.Background())
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		r.policy.Reject(err)
	default:
		before := r.policy.InForce()
		if r.policy.Apply(w.parts.apply(d.Clone())) == nil {
			r.applied, r.newest, r.stopped = d, max(r.newest, d.Revision), false
			if f := r.policy.InForce(); f.Revision != before.Revision || f.UpdatedAt != before.UpdatedAt {
				r.appliedAt = w.now
			}
		}
	}
	w.watch.replica(r)
}

func (w *world) scrape() error {
	if w.now.Before(w.scrapeAt) {
		return nil
	}
	w.scrapeAt = w.now.Add(w.settings.ScrapeInterval)
	if w.hits(promGap) {
		return nil
	}
	at := w.now.Add(w.clock)
	for _, e := range w.pool.engines {
		if !e.dark {
			w.scraper.scrapeEngine(e, at)
		}
	}
	for _, r := range w.replicas {
		if r.dark {
			continue
		}
		if err := w.scraper.scrapeReplica(r, at); err != nil {
			return err
		}
	}
	return nil
}

// ask Prometheus.
func (w *world) ask(p *process, q query) result {
	answer, _, err := w.scraper.answer(q.text, q.at)
	if err != nil {
		return result{err: err}
	}
	q.answer = answer
	expected := w.settings.Endpoints
	if isPlugin(q.text) {
		expected = 1
	}
	missing := q.incomplete(expected, w.settings.ScrapeInterval)
	r := result{value: answer}
	for _, k := range []Kind{promDuplicate, promNotNumber, promPartial, promEmpty, promTruncated, promStatus, promSlow, promDown} {
		if w.hits(k) {
			var lost bool
			r, lost = spoil(k, q)
			missing = missing || lost
		}
	}
	p.spoiled = p.spoiled || missing
	return w.parts.answer(q, r)
}

// publish carries a tuner's write to the medium.
func (w *world) publish(ctx context.Context, p *process, next *store.Document) error {
	before := w.document()
	if next = w.parts.publish(next); next == nil {
		return nil
	}
	if err := p.store.Swap(ctx, next); err != nil {
		w.trace("%s: publish of revision %d: %v", p.name, next.Revision, err)
		return err
	}
	w.version++
	w.trace("%s: revision %d: %s", p.name, next.Revision, describe(next))
	w.watch.published(p, before, next)
	return nil
}

func (w *world) recorded(p *process, d store.Decision) {
	w.trace("%s: record %s: %s, revision %d: %s", p.name, d.ID, d.Kind, d.Revision, d.Reason)
	w.watch.recorded(p, d)
}

// document the store holds; nil if none that can be read.
func (w *world) document() *store.Document {
	d, err := w.medium.Load(context.Background())
	if err != nil {
		return nil
	}
	return d
}

func describe(d *store.Document) string {
	if d.Trial == nil {
		return d.Baseline.String()
	}
	return fmt.Sprintf("%s, trial %s of %s on %s until %s", d.Baseline, d.Trial.ID, d.Trial.Candidate, d.Trial.Assignment.Mode, d.Trial.ExpiresAt.Format(time.TimeOnly))
}

func (w *world) trace(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%8s  %s\n", w.now.Sub(w.plan.start), fmt.Sprintf(format, args...))
	}
}
