package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	pages "github.com/kvtuner/kvtuner/internal/report"
)

const (
	demoDuration    = 150 * time.Minute
	demoMinDuration = time.Minute
	demoMaxDuration = 24 * time.Hour
)

// demoPlot is what happens, with the share of each phase in a demo of
// demoDuration.
var demoPlot = []struct {
	scenario string
	note     string
	minutes  int
	strained bool
}{
	{"8k-c32", "8K prefixes from 32 streams, storage as published.", 25, false},
	{"8k-c32-slow-storage", "Storage turns four times slower; the requests are the same.", 35, true},
	{"mixed-c64-slow-storage", "The workload shifts to prefixes of 1K to 8K from 64 streams; storage stays slow.", 35, true},
	{"mixed-c64", "Storage recovers.", 25, false},
	{"8k-c64", "The workload shifts to 8K prefixes from 64 streams.", 30, false},
}

const demoIntro = `One fleet of four engines serves a day in short: storage turns four times slower, the workload shifts, storage recovers. ` +
	`The tuner starts from the published thresholds, restore from 1024 tokens while fewer than 8 requests wait, and moves both online.`

// demoPhases shares a duration out among the phases, in whole seconds.
func demoPhases(total time.Duration) ([]pages.Phase, error) {
	if total < demoMinDuration || total > demoMaxDuration || total%time.Second != 0 {
		return nil, fmt.Errorf("duration %v: want whole seconds from %v to %v", total, demoMinDuration, demoMaxDuration)
	}
	var phases []pages.Phase
	var minutes int
	var given time.Duration
	for _, p := range demoPlot {
		minutes += p.minutes
		end := (total * time.Duration(minutes) / (demoDuration / time.Minute)).Truncate(time.Second)
		phases = append(phases, pages.Phase{Name: p.scenario, Note: p.note, Strained: p.strained, Duration: end - given})
		given = end
	}
	return phases, nil
}

// runDemo lets every policy meet the same day. progress is told about the tuned
// run.
func runDemo(ctx context.Context, seed uint64, phases []pages.Phase, progress func(lab.Progress)) (pages.Story, error) {
	names := []string{"tuned", "static:1024+8", "load", "recompute"}
	runs := make([]pages.Run, len(names))
	group, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		run, err := demoRun(name, seed, phases)
		if err != nil {
			return pages.Story{}, err
		}
		if i == 0 {
			run.Progress = progress
		}
		group.Go(func() error {
			outcome, err := run.Do(ctx)
			runs[i] = pages.Run{Policy: name, Outcome: outcome}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return pages.Story{}, err
	}
	return pages.Story{
		Title: "kvtuner demo: storage turns slow, the workload shifts", Intro: demoIntro,
		Seed: seed, Phases: phases, Tuned: runs[0], Reference: runs[1], Others: runs[2:],
	}, nil
}

func demoRun(policy string, seed uint64, phases []pages.Phase) (lab.Run, error) {
	p, err := lab.ParsePolicy(policy)
	if err != nil {
		return lab.Run{}, err
	}
	run := lab.Run{Policy: p, Seed: seed}
	for _, phase := range phases {
		s, err := fleet.ByName(phase.Name)
		if err != nil {
			return lab.Run{}, err
		}
		run.Phases = append(run.Phases, lab.Phase{Scenario: s, Duration: phase.Duration})
	}
	return run, nil
}
