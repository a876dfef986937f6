package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/results"
)

// resultsFlags are what the results page is made from.
type resultsFlags struct {
	options results.Options
	format  string
	plots   string
}

func newResultsCommand() *cobra.Command {
	f := resultsFlags{}
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Measure what the tuner is worth, and write the page that says so",
		Long: `Measure what the tuner is worth on the simulated fleet: over shifting schedules
against fixed thresholds, hindsight and plain climbing; where nothing is to be
gained; how fast it recovers; its worst five minutes; days on which nothing
changes; and what each of its mechanisms adds. With 10 seeds that takes about an
hour on two cores.`,
		Example: `  kvtuner bench results --seeds 10 --day-seeds 3 --plots docs/img > docs/results.md
  kvtuner bench results --seeds 2 --day-seeds 1 --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags, o := cmd.Flags(), &f.options
	flags.IntVar(&o.Seeds, "seeds", 10, "seeds of each comparison, 2 to 100")
	flags.IntVar(&o.DaySeeds, "day-seeds", 3, "seeds of what takes a virtual day, 1 to 100")
	flags.Uint64Var(&o.FirstSeed, "first-seed", 1, "first of the seeds")
	flags.IntVar(&o.Parallel, "parallel", runtime.GOMAXPROCS(0), "runs at a time, 1 to 1024")
	flags.StringVar(&f.format, "format", "markdown", "form of the output: markdown or json")
	flags.StringVar(&f.plots, "plots", "", "directory for the page's pictures")
	return cmd
}

func (f *resultsFlags) validate() error {
	o := f.options
	for _, n := range []struct {
		flag             string
		value, low, high int
	}{{"seeds", o.Seeds, 2, 100}, {"day-seeds", o.DaySeeds, 1, 100}, {"parallel", o.Parallel, 1, 1024}} {
		if n.value < n.low || n.value > n.high {
			return usage(fmt.Errorf("--%s: %d is not allowed; %d to %d", n.flag, n.value, n.low, n.high))
		}
	}
	if f.format != "markdown" && f.format != "json" {
		return usage(fmt.Errorf("--format: %q is not allowed; markdown or json", f.format))
	}
	return nil
}

func (f *resultsFlags) run(cmd *cobra.Command) error {
	if err := f.validate(); err != nil {
		return err
	}
	if f.plots != "" {
		if err := os.MkdirAll(f.plots, 0o755); err != nil {
			return usage(fmt.Errorf("--plots: %w", err))
		}
	}
	f.options.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
	study, err := results.Run(cmd.Context(), f.options)
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	if f.plots != "" {
		if err := writeResultPlots(study, f.plots); err != nil {
			return err
		}
	}
	if f.format == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(study)
	}
	return study.WritePage(cmd.OutOrStdout(), f.command())
}

// command is how the page was made, without what does not show.
func (f *resultsFlags) command() string {
	s := fmt.Sprintf("kvtuner bench results --seeds %d --day-seeds %d", f.options.Seeds, f.options.DaySeeds)
	if f.options.FirstSeed != 1 {
		s += fmt.Sprintf(" --first-seed %d", f.options.FirstSeed)
	}
	if f.plots != "" {
		s += " --plots " + f.plots
	}
	return s + " > docs/results.md"
}

func writeResultPlots(study results.Study, dir string) error {
	for _, p := range study.Plots() {
		var b strings.Builder
		if err := p.WriteSVG(&b); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
		if err := renameio.WriteFile(filepath.Join(dir, p.Name), []byte(b.String()), 0o644); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
	}
	return nil
}
