package results

import (
	"context"
	"fmt"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/tuner"
)

// Ablation is the tuner without one of its parts, or with another choice of a
// setting, against the whole tuner with the same seeds.
type Ablation struct {
	Name string `json:"name"`
	// Effects by schedule.
	Effects []AblationEffect `json:"effects"`
}

// AblationEffect on one schedule: the relative change of mean end-to-end time and
// mean TTFT (0.01 is 1% slower without), and the trials an hour.
type AblationEffect struct {
	Schedule string         `json:"schedule"`
	E2E      bench.Estimate `json:"e2e"`
	TTFT     bench.Estimate `json:"ttft"`
	Trials   float64        `json:"trials_per_hour"`
	Moves    float64        `json:"moves"`
}

type variant struct {
	name   string
	adjust func(*tuner.Settings)
}

func variants() []variant {
	all := []variant{{"the whole tuner", nil}}
	for _, m := range tuner.Mechanisms() {
		all = append(all, variant{"without " + string(m), func(s *tuner.Settings) { s.Without = []tuner.Mechanism{m} }})
	}
	return append(all,
		variant{"blocks of 60 s, no washout", func(s *tuner.Settings) { s.Trial.Block, s.Trial.Washout = time.Minute, 0 }},
		variant{"a recompute costs only itself", func(s *tuner.Settings) { s.Search.BatchCost = 0 }},
		variant{"only moves of 2% or more", func(s *tuner.Settings) { s.Trial.MinEffect = 0.02 }},
		variant{"end-to-end time alone", func(s *tuner.Settings) { s.Objective.TTFT = 0 }},
	)
}

func (s *Study) runAblations(ctx context.Context) error {
	all := variants()
	for _, v := range all {
		s.Ablations = append(s.Ablations, Ablation{Name: v.name})
	}
	for _, name := range []string{"shifting", "held-out"} {
		schedule, err := readSchedule(name)
		if err != nil {
			return err
		}
		hours := 0.0
		for _, p := range schedule.Phases {
			hours += p.Duration.Hours()
		}
		var whole []bench.Row
		for i, v := range all {
			s.say("ablation: %s", v.name)
			r, err := s.bench(ctx, schedule, []string{"tuned"}, s.Seeds, bench.Options{Adjust: v.adjust})
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			rows := wholeRows(r.Rows)
			if i == 0 {
				whole = rows
			}
			s.Ablations[i].Effects = append(s.Ablations[i].Effects, effect(name, rows, whole, hours))
		}
	}
	return nil
}

func wholeRows(rows []bench.Row) []bench.Row {
	var whole []bench.Row
	for _, r := range rows {
		if r.Phase == 0 {
			whole = append(whole, r)
		}
	}
	return whole
}

func effect(schedule string, own, whole []bench.Row, hours float64) AblationEffect {
	e := AblationEffect{Schedule: schedule}
	var e2e, ttft, trials, moves []float64
	for i, r := range own {
		e2e = append(e2e, float64(r.E2EMean/whole[i].E2EMean)-1)
		ttft = append(ttft, float64(r.TTFTMean/whole[i].TTFTMean)-1)
		trials = append(trials, float64(r.Trials)/hours)
		moves = append(moves, float64(r.Moves))
	}
	e.E2E, e.TTFT = bench.EstimateOf(e2e), bench.EstimateOf(ttft)
	e.Trials, e.Moves = stat.Mean(trials, nil), stat.Mean(moves, nil)
	return e
}
