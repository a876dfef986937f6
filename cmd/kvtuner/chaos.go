package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/chaos"
)

// chaosFlags are what a fault campaign is asked for.
type chaosFlags struct {
	options  chaos.Options
	format   *choice
	verbose  bool
	progress bool
}

func newChaosCommand() *cobra.Command {
	f := chaosFlags{format: newChoice("table", "json")}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything around the tuner and check that it keeps its promises",
		Long: `Run a fault campaign: in each schedule a pool, its tuner and what goes wrong are
drawn from a seed, and lived through in virtual time. The tuner, the stores, the
history and the plugin are the real ones; Prometheus, the engines, the disk and
the clocks fail at random: errors and lies of Prometheus, dark and replaced
engines, stores that are down, full, torn or put back to an older state, EPP
replicas that restart or do not read, a tuner killed at any point, second tuners,
operators who command it, ConfigMaps that others edit, apply and delete, clocks
that jump, load that collapses.

After every event the rules are checked: parameters within bounds and step limits,
at most one trial, none past its expiry, no more time on candidates than allowed,
the incumbent back after an abort, a record for every change, log and parameters
in agreement, operators obeyed, what others declare left alone, requests served
whatever happens, nothing moved on missing data.

Schedule N of a campaign has seed --seed + N. A violation is reproduced by its
seed: --seed S --schedules 1 --verbose prints what happened. The exit code is 1 if
a rule was broken.`,
		Example: `  kvtuner chaos --schedules 1000 --seed 1 --format json
  kvtuner chaos --schedules 1 --seed 42 --verbose`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags, o := cmd.Flags(), &f.options
	flags.IntVar(&o.Schedules, "schedules", 1000, "number of schedules")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the first")
	flags.IntVar(&o.Parallel, "parallel", runtime.GOMAXPROCS(0), "schedules at a time")
	flags.Float64Var(&o.Disk, "disk", chaos.DefaultDisk, "share of the schedules whose store and history are files; it is part of the seed")
	flags.Float64Var(&o.Cluster, "cluster", chaos.DefaultCluster, "share of the others whose store is a ConfigMap; it is part of the seed")
	flags.Var(f.format, "format", "form of the output")
	flags.BoolVar(&f.verbose, "verbose", false, "print every event on standard error")
	flags.BoolVar(&f.progress, "progress", false, "show progress on standard error even if it is no terminal")
	return cmd
}

func (f *chaosFlags) run(cmd *cobra.Command) error {
	if err := f.options.Validate(); err != nil {
		return usage(err)
	}
	progress := benchProgress(cmd.ErrOrStderr(), f.progress)
	if f.verbose {
		f.options.Trace, progress = cmd.ErrOrStderr(), &counter{}
	}
	f.options.Progress = func(done, violations int) {
		progress.show(done, f.options.Schedules, fmt.Sprintf("%d violation(s)", violations))
	}
	report, err := chaos.Run(cmd.Context(), f.options)
	progress.end()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	if f.format.value == "json" {
		err = writeJSON(cmd.OutOrStdout(), report)
	} else {
		err = writeText(cmd.OutOrStdout(), func(w io.Writer) { chaosText(w, report) })
	}
	if err == nil && report.Violations > 0 {
		err = fmt.Errorf("%d violation(s); the first: kvtuner chaos --schedules 1 --seed %d --disk %v --cluster %v --verbose", report.Violations, *report.FirstSeed, f.options.Disk, f.options.Cluster)
	}
	return err
}

func chaosText(w io.Writer, r chaos.Report) {
	a := r.Activity
	fmt.Fprintf(w, "%d schedules, %.0f virtual hours, %d requests\n", r.Schedules, a.VirtualHours, a.Requests)
	fmt.Fprintf(w, "%d steps of tuners, %d of them failed; %d writes\n", a.Steps, a.Failed, a.Writes)
	fmt.Fprintf(w, "faults: %s\n", counts(a.Faults))
	fmt.Fprintf(w, "decisions: %s\n", counts(a.Decisions))
	fmt.Fprintf(w, "violations: %d\n", r.Violations)
	for _, v := range r.Found {
		fmt.Fprintf(w, "  seed %d after %s: %s: %s\n", v.Seed, v.After, v.Rule, v.Detail)
	}
}

func counts[K ~string](of map[K]int) string {
	s := ""
	for _, k := range slices.Sorted(maps.Keys(of)) {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%d %s", of[k], k)
	}
	return s
}
