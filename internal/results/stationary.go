package results

import (
	"context"
	"fmt"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Stationary is a day on which nothing changes.
type Stationary struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Days     int    `json:"days"`
	// TrialsAtFirst is the number in the first two hours, TrialsPerHour the rate
	// after them; means over the days.
	TrialsAtFirst float64 `json:"trials_in_first_two_hours"`
	TrialsPerHour float64 `json:"trials_per_hour_after"`
	// Moves a day, rollbacks among them, and of these false ones: moves to a
	// pair that, run alone, costs at least as much as the one left.
	Moves      float64 `json:"moves_a_day"`
	FalseMoves float64 `json:"false_moves_a_day"`
}

// settling is the time that the first trials are allowed.
const settling = 2 * time.Hour

var stationaryScenarios = []string{"8k-c64", "mixed-c64", "8k-bursts", "mixed-c64-slow-storage", "8k-c32-slow-storage"}

func (s *Study) runStationary(ctx context.Context) error {
	for _, name := range stationaryScenarios {
		scenario, err := fleet.ByName(name)
		if err != nil {
			return err
		}
		var costs once[store.Params, float64]
		for _, policy := range tunedPolicies {
			p, err := lab.ParsePolicy(policy)
			if err != nil {
				return err
			}
			days := make([]Stationary, s.DaySeeds)
			err = s.each(ctx, s.DaySeeds, func(ctx context.Context, n int) error {
				seed := s.Options.FirstSeed + uint64(n)
				s.say("a stationary day of %s: %s, seed %d", name, policy, seed)
				o, err := lab.Run{Phases: []lab.Phase{{Scenario: scenario, Duration: 24 * time.Hour}}, Policy: p, Seed: seed, Scrape: scrape}.Do(ctx)
				if err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				days[n], err = s.day(ctx, o, scenario, &costs)
				return err
			})
			if err != nil {
				return err
			}
			s.Stationary = append(s.Stationary, meanDay(name, policy, days))
		}
	}
	return nil
}

func (s *Study) day(ctx context.Context, o lab.Outcome, scenario fleet.Scenario, costs *once[store.Params, float64]) (Stationary, error) {
	var d Stationary
	for _, decision := range o.Decisions {
		early := decision.Time.Before(o.Start.Add(settling))
		switch decision.Kind {
		case store.KindTrial, store.KindShed:
			if early {
				d.TrialsAtFirst++
			} else {
				d.TrialsPerHour++
			}
		case store.KindMove, store.KindRecover, store.KindRollback:
			d.Moves++
			better, err := s.improves(ctx, scenario, decision.From, decision.To, costs)
			if err != nil {
				return d, err
			}
			if !better {
				d.FalseMoves++
			}
		}
	}
	d.TrialsPerHour /= (24*time.Hour - settling).Hours()
	return d, nil
}

// improves tells whether a pair costs less than another, both run alone for an
// hour with every seed.
func (s *Study) improves(ctx context.Context, scenario fleet.Scenario, from, to store.Params, costs *once[store.Params, float64]) (bool, error) {
	var pair [2]float64
	for i, p := range []store.Params{from, to} {
		cost, err := costs.get(p, func() (float64, error) { return s.fixedCost(ctx, scenario, p) })
		if err != nil {
			return false, err
		}
		pair[i] = cost
	}
	return pair[1] < pair[0], nil
}

// fixedCost is the tuner's objective of a fixed pair.
func (s *Study) fixedCost(ctx context.Context, scenario fleet.Scenario, p store.Params) (float64, error) {
	weights := tuner.DefaultSettings().Objective
	var costs []float64
	for n := range s.Seeds {
		o, err := lab.Run{Phases: []lab.Phase{{Scenario: scenario, Duration: time.Hour}}, Policy: lab.Static(p), Seed: s.Options.FirstSeed + uint64(n), Scrape: scrape}.Do(ctx)
		if err != nil {
			return 0, err
		}
		costs = append(costs, weights.E2E*o.Stats.E2EMean+weights.TTFT*o.Stats.TTFTMean)
	}
	return stat.Mean(costs, nil), nil
}

func meanDay(scenario, policy string, days []Stationary) Stationary {
	m := Stationary{Scenario: scenario, Policy: policy, Days: len(days)}
	n := float64(len(days))
	for _, d := range days {
		m.TrialsAtFirst += d.TrialsAtFirst / n
		m.TrialsPerHour += d.TrialsPerHour / n
		m.Moves += d.Moves / n
		m.FalseMoves += d.FalseMoves / n
	}
	return m
}
