package results

import (
	"context"
	"time"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

// settledCells are the published cells in which the choice matters most, and one
// of so little pressure that always restoring is right.
var settledCells = []string{"1k-c64", "2k-c64", "4k-c32", "8k-c32", "8k-c64", "8k-c4"}

// Settled is the second half hour of a cell: what remains of the tuner's doing
// when it has nothing left to do.
type Settled struct {
	Scenario  string          `json:"scenario"`
	Reference string          `json:"reference"`
	Summary   []bench.Summary `json:"summary"`
}

func (s *Study) runSettled(ctx context.Context) error {
	for _, name := range settledCells {
		schedule, err := repeat(name, 30*time.Minute, 2)
		if err != nil {
			return err
		}
		reference := bench.DefaultReference
		if name == "8k-c4" {
			reference = "load"
		}
		r, err := s.bench(ctx, schedule, append([]string{reference}, tunedPolicies...), s.Seeds, bench.Options{Reference: reference})
		if err != nil {
			return err
		}
		cell := Settled{Scenario: name, Reference: reference}
		for _, row := range r.Summary {
			if row.Phase == 2 && row.Policy != reference {
				cell.Summary = append(cell.Summary, row)
			}
		}
		s.Settled = append(s.Settled, cell)
	}
	return nil
}

// repeat is a schedule of one scenario in equal parts.
func repeat(name string, part time.Duration, times int) (bench.Schedule, error) {
	scenario, err := fleet.ByName(name)
	if err != nil {
		return bench.Schedule{}, err
	}
	schedule := bench.Schedule{Name: name}
	for range times {
		schedule.Phases = append(schedule.Phases, lab.Phase{Scenario: scenario, Duration: part})
	}
	return schedule, nil
}

// Recovery is a fleet on slow storage that starts from 1024+8: the efficiency of
// each five minutes against the pair that is best in them.
type Recovery struct {
	Scenario string             `json:"scenario"`
	Policies []RecoveryOfPolicy `json:"policies"`
}

// RecoveryOfPolicy is one policy's.
type RecoveryOfPolicy struct {
	Policy     string           `json:"policy"`
	Efficiency []bench.Estimate `json:"efficiency"`
}

// within is the distance from the best at which a fleet counts as recovered.
const within = 0.03

// Minutes until the first five minutes within 3% of the best begin; -1 if none.
func (r RecoveryOfPolicy) Minutes() int {
	for i, e := range r.Efficiency {
		if float64(e.Mean) >= 1-within {
			return 5 * i
		}
	}
	return -1
}

func (s *Study) runRecoveries(ctx context.Context) error {
	for _, name := range []string{"mixed-c64-slow-storage", "8k-c32-slow-storage"} {
		schedule, err := repeat(name, 5*time.Minute, 6)
		if err != nil {
			return err
		}
		policies := append([]string{"static:1024+8", "climb", "oracle"}, tunedPolicies...)
		r, err := s.bench(ctx, schedule, policies, s.Seeds, bench.Options{})
		if err != nil {
			return err
		}
		recovery := Recovery{Scenario: name}
		for _, policy := range policies {
			of := RecoveryOfPolicy{Policy: policy}
			for _, row := range (Schedule{Summary: r.Summary}).Phases(policy) {
				of.Efficiency = append(of.Efficiency, row.Metrics["efficiency"])
			}
			if policy != bench.Oracle {
				recovery.Policies = append(recovery.Policies, of)
			}
		}
		s.Recoveries = append(s.Recoveries, recovery)
	}
	return nil
}
