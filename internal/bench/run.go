package bench

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kvtuner/kvtuner/internal/lab"
)

// Result of a bench.
type Result struct {
	// Rows by scenario or phase, policy and seed, in the order of the Options.
	Rows []Row `json:"rows"`
	// Summary has one entry for all seeds of a scenario or phase and a policy.
	Summary []Summary `json:"summary"`
}

// Run carries out the whole matrix. It returns early, with ctx's error, when ctx
// ends.
func Run(ctx context.Context, o Options) (Result, error) {
	p, err := o.plan()
	if err != nil {
		return Result{}, err
	}
	m := matrix{plan: p, done: map[job]outcome{}}
	if err := m.runAll(ctx, o.Progress); err != nil {
		return Result{}, err
	}
	var r Result
	for i := range p.tracks {
		rows, err := m.rows(i)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", p.tracks[i].name, err)
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.Summary = summarise(r.Rows, p.reference)
	return r, nil
}

// job is one run. Policies that turn out to be the same share it.
type job struct {
	track  int
	policy lab.Policy
	seed   uint64
}

type matrix struct {
	plan plan
	mu   sync.Mutex
	done map[job]outcome
}

// jobs lists what has to be run, each once.
func (p plan) jobs() []job {
	var all []job
	seen := map[job]bool{}
	add := func(j job) {
		if !seen[j] {
			seen[j] = true
			all = append(all, j)
		}
	}
	for t, track := range p.tracks {
		for _, c := range p.policies {
			runs := []lab.Policy{c.run}
			if c.hindsight() {
				runs = grid(track.phases)
			}
			for _, run := range runs {
				for _, seed := range p.seeds {
					add(job{t, run, seed})
				}
			}
		}
	}
	return all
}

func (m *matrix) runAll(ctx context.Context, progress func(done, total int, what string)) error {
	jobs := m.plan.jobs()
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(m.plan.parallel)
	for _, j := range jobs {
		if running.Err() != nil {
			break
		}
		group.Go(func() error {
			o, err := m.run(running, j)
			if err != nil {
				return err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.done[j] = o
			if progress != nil {
				progress(len(m.done), len(jobs), fmt.Sprintf("%s %s seed %d", m.plan.tracks[j.track].name, j.policy, j.seed))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (m *matrix) run(ctx context.Context, j job) (outcome, error) {
	t := m.plan.tracks[j.track]
	o, err := lab.Run{Phases: t.phases, Policy: j.policy, Seed: j.seed, Scrape: m.plan.scrape, Adjust: m.plan.adjust}.Do(ctx)
	if err != nil {
		return outcome{}, fmt.Errorf("%s, seed %d: %w", t.name, j.seed, err)
	}
	return newOutcome(o), nil
}

// of returns the finished runs of a policy on a track, by seed.
func (m *matrix) of(track int, p lab.Policy) []outcome {
	var all []outcome
	for _, seed := range m.plan.seeds {
		all = append(all, m.done[job{track, p, seed}])
	}
	return all
}
