package results

import (
	"context"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/internal/bench"
)

// scrape is the interval the tuner lives with.
const scrape = 15 * time.Second

// Schedule is the comparison on one schedule.
type Schedule struct {
	Name    string          `json:"name"`
	HeldOut bool            `json:"held_out"`
	Seeds   int             `json:"seeds"`
	Hours   float64         `json:"hours"`
	Summary []bench.Summary `json:"summary"`
}

// Policies compared, the best first.
func (s Schedule) Policies() []bench.Summary {
	var whole []bench.Summary
	for _, row := range s.Summary {
		if row.Phase == 0 {
			whole = append(whole, row)
		}
	}
	slices.SortStableFunc(whole, func(a, b bench.Summary) int {
		if a.Metrics["e2e_mean_s"].Mean < b.Metrics["e2e_mean_s"].Mean {
			return -1
		}
		return 1
	})
	return whole
}

// Phases of a policy.
func (s Schedule) Phases(policy string) []bench.Summary {
	var rows []bench.Summary
	for _, row := range s.Summary {
		if row.Phase > 0 && row.Policy == policy {
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *Study) runSchedules(ctx context.Context) error {
	policies := append([]string{"load", "recompute", "static:1024+8", "climb", "best-static", "oracle"}, tunedPolicies...)
	for _, which := range []struct {
		name    string
		heldOut bool
		seeds   int
	}{{"shifting", false, s.Seeds}, {"held-out", true, s.Seeds}, {"day", true, s.DaySeeds}} {
		schedule, err := readSchedule(which.name)
		if err != nil {
			return err
		}
		r, err := s.bench(ctx, schedule, policies, which.seeds, bench.Options{})
		if err != nil {
			return err
		}
		m := Schedule{Name: which.name, HeldOut: which.heldOut, Seeds: which.seeds, Summary: r.Summary}
		for _, p := range schedule.Phases {
			m.Hours += p.Duration.Hours()
		}
		s.Schedules = append(s.Schedules, m)
	}
	return nil
}
