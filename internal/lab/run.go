package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

const (
	poolName  = "lab"
	namespace = "lab"
)

// Phase is a scenario that lasts.
type Phase struct {
	Scenario fleet.Scenario
	Duration time.Duration
}

// Run is one simulated stretch of a fleet's life.
type Run struct {
	Phases []Phase
	Policy Policy
	Seed   uint64
	// Scrape interval of the embedded Prometheus; 0 is 15 s.
	Scrape time.Duration
	// Adjust changes the tuner's settings, if not nil.
	Adjust func(*tuner.Settings)
	// Progress is told after each scrape interval, if not nil.
	Progress func(Progress)
	// Recorded is given the embedded Prometheus and the time of its last scrape
	// when a tuned run is over, before it closes, if not nil. The tuner's own
	// metrics are then scraped, too, as job "kvtuner".
	Recorded func(*prom.Server, time.Time) error
	// Deaf engines ignore the plugin's decisions; see fleet.Options.
	Deaf bool
	// Logger of the tuner; nil discards.
	Logger *slog.Logger
}

// Progress is a look at a run under way.
type Progress struct {
	// Elapsed virtual time, and the time the whole run takes.
	Elapsed, Total time.Duration
	Phase          int
	Scenario       string
	Params         store.Params
	Trial          *store.Trial
	// Second is the last full virtual second; Decision what the tuner has just
	// decided.
	Second   fleet.Second
	Decision *store.Decision
	// Tuner at work, for who wants to see or command it; nil without one. Time
	// stands still, at Now, for as long as Progress takes.
	Tuner *tuner.Tuner
	Now   time.Time
}

// Outcome of a run.
type Outcome struct {
	// Start is when virtual time began; Decision.Time counts from there.
	Start time.Time
	// Stats of the whole run.
	Stats  fleet.Stats
	Phases []PhaseOutcome
	// Decisions of the tuner, oldest first.
	Decisions []store.Decision
	// Path of the parameters in force.
	Path []Point
	// Seconds of the whole run.
	Seconds []fleet.Second
}

// PhaseOutcome is one phase's statistics and the tuner's activity in it.
type PhaseOutcome struct {
	Scenario string
	Stats    fleet.Stats
	Activity Activity
}

// Activity counts what a tuner did.
type Activity struct{ Moves, Trials, Aborted int }

// Point is a change of the parameters in force.
type Point struct {
	At     time.Duration
	Params store.Params
	Arm    store.Arm
}

// epoch is when virtual time begins: an ordinary Monday.
var epoch = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// Do carries out the run.
func (r Run) Do(ctx context.Context) (Outcome, error) {
	if len(r.Phases) == 0 {
		return Outcome{}, errors.New("run: there are no phases")
	}
	if r.Scrape == 0 {
		r.Scrape = 15 * time.Second
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	l := &loop{run: r}
	defer l.close()
	if err := l.open(); err != nil {
		return Outcome{}, fmt.Errorf("run of %s: %w", r.Policy, err)
	}
	if err := l.all(ctx); err != nil {
		return Outcome{}, fmt.Errorf("run of %s: %w", r.Policy, err)
	}
	if r.Recorded != nil && l.prom != nil {
		if err := r.Recorded(l.prom, l.fleet.Now()); err != nil {
			return Outcome{}, fmt.Errorf("record of %s: %w", r.Policy, err)
		}
	}
	return l.outcome, nil
}

// loop is a run under way.
type loop struct {
	run     Run
	fleet   *fleet.Fleet
	policy  *plugin.Policy
	outcome Outcome
	elapsed time.Duration
	phase   int
	climber *climber // of plain climbing only

	// Of tuned runs only.
	prom     *prom.Server
	replica  *prometheus.Registry
	own      *prometheus.Registry // the tuner's
	tuner    *tuner.Tuner
	document *store.Memory
	journal  journal
	applied  int64
	nextStep time.Time
}

// journal keeps decisions in memory.
type journal struct{ decisions []store.Decision }

func (j *journal) Append(d store.Decision) error {
	j.decisions = append(j.decisions, d)
	return nil
}

func (l *loop) open() error {
	l.replica = prometheus.NewRegistry()
	var decider fleet.Policy = alwaysLoad{}
	if l.run.Policy.kind != load {
		policy, err := l.run.Policy.build(l.now, l.replica)
		if err != nil {
			return err
		}
		l.policy, decider = policy, policy
	}
	f, err := fleet.New(fleet.Options{Scenario: l.run.Phases[0].Scenario, Seed: l.run.Seed, Policy: decider, Start: epoch, Deaf: l.run.Deaf})
	if err != nil {
		return err
	}
	l.fleet = f
	l.outcome.Path = []Point{{Params: l.run.Policy.params, Arm: store.ArmBaseline}}
	switch l.run.Policy.kind {
	case tuned, adaptive:
		return l.openTuner()
	case climb:
		l.climber = newClimber()
	}
	return nil
}

func (l *loop) now() time.Time {
	if l.fleet == nil {
		return epoch
	}
	return l.fleet.Now()
}

func (l *loop) openTuner() error {
	server, err := prom.Open(prom.Options{})
	if err != nil {
		return err
	}
	l.prom = server
	client, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: server.RoundTripper()})
	if err != nil {
		return err
	}
	s := tuner.DefaultSettings()
	s.Name, s.Mode, s.ScrapeInterval, s.Initial = poolName, tuner.Enforce, l.run.Scrape, l.run.Policy.params
	s.Selector = fmt.Sprintf("namespace=%q", namespace)
	s.TensorParallel = int(l.run.Phases[0].Scenario.Profile.TensorParallel)
	if l.run.Policy.kind == adaptive {
		s.Search.Adaptive = tuner.AdaptiveOn
	}
	s.Endpoints = int(l.run.Phases[0].Scenario.Profile.Replicas)
	if l.run.Adjust != nil {
		l.run.Adjust(&s)
	}
	l.document, l.own = store.NewMemory(poolName), prometheus.NewRegistry()
	l.tuner, err = tuner.New(tuner.Options{
		Settings: s, Prometheus: promv1.NewAPI(client), QueryTimeout: time.Minute, Documents: l.document,
		Journal: &l.journal, Logger: l.run.Logger, Registerer: l.own,
	})
	return err
}

func (l *loop) close() {
	if l.prom != nil {
		_ = l.prom.Close() // of a temporary directory
	}
}

func (l *loop) all(ctx context.Context) error {
	for i, p := range l.run.Phases {
		l.phase = i
		if i > 0 {
			if err := l.fleet.Switch(p.Scenario); err != nil {
				return err
			}
		}
		l.fleet.ResetStats()
		before := len(l.journal.decisions)
		if err := l.pass(ctx, p.Duration); err != nil {
			return err
		}
		l.outcome.Phases = append(l.outcome.Phases, PhaseOutcome{
			Scenario: p.Scenario.Name, Stats: l.fleet.Stats(), Activity: activity(l.journal.decisions[before:]),
		})
		l.outcome.Seconds = append(l.outcome.Seconds, l.fleet.Seconds()...)
	}
	l.outcome.Start, l.outcome.Stats = epoch, l.fleet.Total()
	l.outcome.Decisions = l.journal.decisions
	return nil
}

// pass lets a phase's time go by, scrape by scrape.
func (l *loop) pass(ctx context.Context, d time.Duration) error {
	for left := d; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		step := min(left, l.run.Scrape)
		l.fleet.Advance(step)
		left -= step
		l.elapsed += step
		before := len(l.journal.decisions)
		switch {
		case l.tuner != nil:
			if err := l.turn(ctx); err != nil {
				return err
			}
		case l.climber != nil:
			if err := l.climb(); err != nil {
				return err
			}
		}
		l.progress(before)
	}
	return nil
}

// turn scrapes everything, lets the tuner step, and carries the document to the
// plugin.
func (l *loop) turn(ctx context.Context) error {
	now := l.fleet.Now()
	for _, e := range l.fleet.Endpoints() {
		target := map[string]string{"namespace": namespace, "pod": e.Name, "instance": e.Name + ":8000", "job": "vllm"}
		if err := l.prom.Scrape(now, target, e.Gatherer); err != nil {
			return err
		}
	}
	epp := map[string]string{"namespace": namespace, "pod": "epp-0", "instance": "epp-0:9090", "job": "epp"}
	if err := l.prom.Scrape(now, epp, l.replica); err != nil {
		return err
	}
	if l.run.Recorded != nil {
		tuner := map[string]string{"namespace": namespace, "pod": "kvtuner-0", "instance": "kvtuner-0:9090", "job": "kvtuner"}
		if err := l.prom.Scrape(now, tuner, l.own); err != nil {
			return err
		}
	}
	if now.Before(l.nextStep) {
		return nil
	}
	l.nextStep = now.Add(l.tuner.Interval())
	if err := l.tuner.Step(ctx, now); err != nil {
		return err
	}
	return l.carry(ctx)
}

// carry applies a document the plugin has not seen.
func (l *loop) carry(ctx context.Context) error {
	d, err := l.document.Load(ctx)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Revision == l.applied {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.policy.Apply(d); err != nil {
		return err
	}
	l.applied = d.Revision
	params, arm := d.InForce("", l.fleet.Now())
	if last := l.outcome.Path[len(l.outcome.Path)-1]; last.Params != params || last.Arm != arm { // else new costs only
		l.outcome.Path = append(l.outcome.Path, Point{At: l.elapsed, Params: params, Arm: arm})
	}
	return nil
}

func (l *loop) progress(before int) {
	if l.run.Progress == nil {
		return
	}
	p := Progress{Elapsed: l.elapsed, Phase: l.phase, Scenario: l.run.Phases[l.phase].Scenario.Name, Tuner: l.tuner, Now: l.fleet.Now()}
	for _, phase := range l.run.Phases {
		p.Total += phase.Duration
	}
	if n := len(l.outcome.Path); n > 0 {
		p.Params = l.outcome.Path[n-1].Params
	}
	if l.document != nil {
		if d, err := l.document.Load(context.Background()); err == nil {
			p.Trial = d.Trial
		}
	}
	if seconds := l.fleet.Seconds(); len(seconds) > 0 {
		p.Second = seconds[len(seconds)-1]
	}
	if len(l.journal.decisions) > before {
		p.Decision = &l.journal.decisions[len(l.journal.decisions)-1]
	}
	l.run.Progress(p)
}

func activity(decisions []store.Decision) Activity {
	var a Activity
	for _, d := range decisions {
		switch d.Kind {
		case store.KindMove, store.KindRecover, store.KindRollback:
			a.Moves++
		case store.KindTrial, store.KindShed:
			a.Trials++
		case store.KindAbort:
			a.Aborted++
		}
	}
	return a
}
