package results

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

// Worst is the worst five minutes of a policy against 1024+8 with the same seed,
// on the shifting schedule: the largest relative loss of mean end-to-end time,
// averaged over the seeds. The placebo is 1024+8 against itself with another
// seed: what chance alone does.
type Worst struct {
	Policy string  `json:"policy"`
	Mean   float64 `json:"mean"`
	Least  float64 `json:"least"`
}

const placebo = "placebo (static:1024+8, another seed)"

// placeboSeeds is the distance of the placebo's seeds.
const placeboSeeds = 1000

func (s *Study) runWorst(ctx context.Context) error {
	schedule, err := readSchedule("shifting")
	if err != nil {
		return err
	}
	policies := append([]string{placebo}, tunedPolicies...)
	losses := make([][]float64, len(policies))
	for i := range losses {
		losses[i] = make([]float64, s.Seeds)
	}
	err = s.each(ctx, s.Seeds, func(ctx context.Context, n int) error {
		seed := s.Options.FirstSeed + uint64(n)
		s.say("worst five minutes: seed %d", seed)
		reference, err := fiveMinutes(ctx, schedule.Phases, "static:1024+8", seed)
		if err != nil {
			return err
		}
		for i, policy := range policies {
			of, with := policy, seed
			if policy == placebo {
				of, with = "static:1024+8", seed+placeboSeeds
			}
			own, err := fiveMinutes(ctx, schedule.Phases, of, with)
			if err != nil {
				return err
			}
			losses[i][n] = worst(own, reference)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, policy := range policies {
		least := 0.0
		for _, l := range losses[i] {
			least = math.Min(least, l)
		}
		s.Worst = append(s.Worst, Worst{Policy: policy, Mean: stat.Mean(losses[i], nil), Least: least})
	}
	return nil
}

// fiveMinutes is the mean end-to-end time of each five minutes of a run.
func fiveMinutes(ctx context.Context, phases []lab.Phase, policy string, seed uint64) ([]float64, error) {
	p, err := lab.ParsePolicy(policy)
	if err != nil {
		return nil, err
	}
	o, err := lab.Run{Phases: phases, Policy: p, Seed: seed, Scrape: scrape}.Do(ctx)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	return means(o.Seconds), nil
}

const fiveMinutesSeconds = 300

func means(seconds []fleet.Second) []float64 {
	var out []float64
	for len(seconds) >= fiveMinutesSeconds {
		sum, n := 0.0, 0
		for _, s := range seconds[:fiveMinutesSeconds] {
			sum, n = sum+s.E2E, n+s.Requests
		}
		out = append(out, sum/float64(n))
		seconds = seconds[fiveMinutesSeconds:]
	}
	return out
}

// worst relative difference of own against the reference: -0.1 is 10% slower.
func worst(own, reference []float64) float64 {
	least := 0.0
	for i := range min(len(own), len(reference)) {
		if d := reference[i]/own[i] - 1; d < least {
			least = d
		}
	}
	return least
}
