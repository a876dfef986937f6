package results

import (
	"context"
	"embed"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kvtuner/kvtuner/internal/bench"
)

// Options of the study.
type Options struct {
	// Seeds of each comparison, from FirstSeed on; DaySeeds of those that take a
	// day of virtual time.
	Seeds, DaySeeds int
	FirstSeed       uint64
	// Parallel is the number of runs at a time.
	Parallel int
	// Progress is told what is being measured, if not nil.
	Progress func(what string)
}

// Study is all that was measured.
type Study struct {
	Options    Options      `json:"-"`
	Seeds      int          `json:"seeds"`
	DaySeeds   int          `json:"day_seeds"`
	Schedules  []Schedule   `json:"schedules"`
	Settled    []Settled    `json:"settled"`
	Recoveries []Recovery   `json:"recoveries"`
	Worst      []Worst      `json:"worst_five_minutes"`
	Stationary []Stationary `json:"stationary"`
	Ablations  []Ablation   `json:"ablations"`
	Designs    []Design     `json:"designs"`
}

//go:embed schedules/*.yaml
var schedules embed.FS

// tunedPolicies are measured against all others.
var tunedPolicies = []string{"tuned", "adaptive"}

// Run measures everything. It returns ctx's error when ctx ends.
func Run(ctx context.Context, o Options) (Study, error) {
	s := Study{Options: o, Seeds: o.Seeds, DaySeeds: o.DaySeeds}
	for _, part := range []struct {
		what    string
		measure func(context.Context) error
	}{
		{"schedules", s.runSchedules}, {"settled cells", s.runSettled}, {"recovery", s.runRecoveries},
		{"worst five minutes", s.runWorst}, {"stationary days", s.runStationary}, {"ablations", s.runAblations}, {"designs", s.runDesigns},
	} {
		if err := part.measure(ctx); err != nil {
			return Study{}, fmt.Errorf("measure %s: %w", part.what, err)
		}
	}
	return s, nil
}

func (s *Study) say(format string, args ...any) {
	if s.Options.Progress != nil {
		s.Options.Progress(fmt.Sprintf(format, args...))
	}
}

func readSchedule(name string) (bench.Schedule, error) {
	raw, err := schedules.ReadFile("schedules/" + name + ".yaml")
	if err != nil {
		return bench.Schedule{}, err
	}
	return bench.ParseSchedule(name, raw)
}

// bench runs policies over a schedule.
func (s *Study) bench(ctx context.Context, schedule bench.Schedule, policies []string, seeds int, o bench.Options) (bench.Result, error) {
	s.say("%s: %d seeds of %v", schedule.Name, seeds, policies)
	o.Schedule, o.Policies, o.Seeds = &schedule, policies, seeds
	o.FirstSeed, o.Parallel, o.Scrape = s.Options.FirstSeed, s.Options.Parallel, scrape
	return bench.Run(ctx, o)
}

// each runs measure for 0 to n-1, as many at a time as the options allow.
func (s *Study) each(ctx context.Context, n int, measure func(context.Context, int) error) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(s.Options.Parallel)
	for i := range n {
		group.Go(func() error {
			if err := running.Err(); err != nil {
				return err
			}
			return measure(running, i)
		})
	}
	return group.Wait()
}

// once computes a value for each key once, whoever asks.
type once[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]func() (V, error)
}

func (o *once[K, V]) get(k K, compute func() (V, error)) (V, error) {
	o.mu.Lock()
	if o.values == nil {
		o.values = map[K]func() (V, error){}
	}
	f, ok := o.values[k]
	if !ok {
		f = sync.OnceValues(compute)
		o.values[k] = f
	}
	o.mu.Unlock()
	return f()
}
