package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/internal/fleet"
)

// benchScenarios are the published cells in which the choice matters most, and
// slow storage, where the published fixed pair is far from the best.
var benchScenarios = []string{
	"1k-c64", "2k-c64", "4k-c32", "8k-c32", "8k-c64", "8k-c32-slow-storage", "mixed-c64-slow-storage",
}

var benchPolicies = []string{"load", "recompute", "static:1024+8", "tuned"}

// benchFlags are what a bench is asked for.
type benchFlags struct {
	options  bench.Options
	schedule string
	profile  string
	trace    string
	format   string
	progress bool
}

func newBenchCommand() *cobra.Command {
	f := benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare policies on a simulated fleet",
		Long: `Compare policies on a simulated fleet, in virtual time and over several seeds.

Each scenario runs for --duration under each policy, from a fleet whose caches
are warm; with --schedule one fleet goes through the phases of a file instead,
and there is a row for each phase and one for all of it:

  - {scenario: 8k-c64, duration: 25m}
  - {scenario: mixed-c64-slow-storage, duration: 40m}

Scenarios are <prefix>-c<streams> with a prefix of 1k, 2k, 4k or 8k, mixed-c64,
mixed-c64-slow-storage, mixed-c64-dear-prefill, 8k-c32-slow-storage,
4k-c64-cheap-prefill, 4k-bursts, 8k-bursts, 4k-poisson, chat-c256, heavy-tail-c64 and
zipf-c64. Policies are
  load           restore whatever is found
  recompute      never restore
  static:T+W     restore from T reusable tokens while fewer than W requests wait
                 (T may be inf, W of 0 is no limit)
  tuned          start at 1024+8 and let the tuner move both
  adaptive       the same, and within both weigh each request: restore only what
                 costs less than computing it (search.adaptive: on)
  climb          plain hill climbing on the mean end-to-end time of each minute,
                 without noise, model or trial: what the tuner must beat
  best-static    the best fixed pair in hindsight: lowest mean end-to-end time,
                 averaged over the seeds, of the grid T = 1, 256, 512, ... 8192
                 (as far as the longest prefix), W = 1, 2, 4, 8, 16, 0, and inf+0
  oracle         the same for each phase of a schedule

With --profile any of it runs on the deployment of a profile file, such as one that
"kvtuner calibrate" wrote; slow, cheap and dear are relative to that. With --trace
the requests of a JSON Lines file are replayed at their own pace, in kvtuner's
format or Mooncake's (docs/workloads.md), as scenario trace:<name of the file>: once,
from cold caches, until a minute after the last arrival unless --duration says
otherwise.

Without arguments it runs the five published cells in which restoring and
recomputing differ most, and two with slow storage, for 30 minutes each: long
enough for the tuner to act. That takes less than a minute.

The table shows means over the seeds with 95% intervals (Student's t), and the
end-to-end time against the reference, paired by seed. JSON has all rows under
"rows" and all means and differences under "summary". Efficiency is the mean
end-to-end time of the oracle, or without it of best-static, divided by a
policy's own. The same arguments give the same output.`,
		Example: `  kvtuner bench --scenarios 1k-c64,8k-c64 --policies load,static:1024+8,tuned --seeds 5 --duration 300s
  kvtuner bench --schedule schedule.yaml --policies static:1024+8,tuned,oracle --seeds 3 --format json
  kvtuner bench --profile fitted.json --trace requests.jsonl --policies load,recompute,tuned --seeds 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd)
	cmd.AddCommand(newResultsCommand())
	return cmd
}

func (f *benchFlags) register(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &f.options
	flags.StringSliceVar(&o.Scenarios, "scenarios", benchScenarios, "scenarios to run, by name")
	flags.StringVar(&f.schedule, "schedule", "", "file with a list of phases to run instead of scenarios")
	flags.StringVar(&f.profile, "profile", "", "deployment profile `FILE` to run on (default the published fleet)")
	flags.StringVar(&f.trace, "trace", "", "request trace `FILE` to replay instead of scenarios")
	flags.StringSliceVar(&o.Policies, "policies", benchPolicies, "policies to compare")
	flags.IntVar(&o.Seeds, "seeds", 5, "number of seeds")
	flags.Uint64Var(&o.FirstSeed, "first-seed", 1, "first of the seeds")
	flags.DurationVar(&o.Duration, "duration", 30*time.Minute, "virtual time of each scenario")
	flags.DurationVar(&o.Scrape, "scrape", 15*time.Second, "scrape interval the tuner lives with")
	flags.StringVar(&o.Reference, "reference", "", "policy to compare with (default "+bench.DefaultReference+", if it is run)")
	flags.IntVar(&o.Parallel, "parallel", runtime.GOMAXPROCS(0), "runs at a time")
	flags.Lookup("parallel").DefValue = "all CPUs"
	flags.StringVar(&f.format, "format", "table", "form of the output: table, json or csv")
	flags.BoolVar(&f.progress, "progress", true, "show progress on standard error")
	cmd.MarkFlagsMutuallyExclusive("schedule", "scenarios")
	cmd.MarkFlagsMutuallyExclusive("schedule", "duration")
	cmd.MarkFlagsMutuallyExclusive("trace", "schedule")
	cmd.MarkFlagsMutuallyExclusive("trace", "scenarios")
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	write, err := bench.Writer(f.format)
	if err != nil {
		return usage(err)
	}
	if err := f.readSchedule(cmd.Context()); err != nil {
		return usage(err)
	}
	if err := f.readDeployment(cmd); err != nil {
		return inputError(cmd.Context(), err)
	}
	if err := f.options.Validate(); err != nil {
		return usage(err)
	}
	progress := benchProgress(cmd.ErrOrStderr(), f.progress)
	f.options.Progress = progress.show
	result, err := bench.Run(cmd.Context(), f.options)
	progress.end()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	return write(cmd.OutOrStdout(), result)
}

// maxScheduleFile, in bytes: thousands of phases take less.
const maxScheduleFile = 1 << 20

func (f *benchFlags) readSchedule(ctx context.Context) error {
	if f.schedule == "" {
		return nil
	}
	raw, err := fromFile(ctx, f.schedule, maxScheduleFile, io.ReadAll)
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	name := filepath.Base(f.schedule)
	s, err := bench.ParseSchedule(strings.TrimSuffix(name, filepath.Ext(name)), raw)
	if err != nil {
		return err
	}
	f.options.Schedule = &s
	return nil
}

// maxTraceFile, in bytes: in memory a trace may take ten times that.
const maxTraceFile = 128 << 20

// readDeployment reads profile and trace.
func (f *benchFlags) readDeployment(cmd *cobra.Command) error {
	o := &f.options
	if f.profile != "" {
		p, err := fromFile(cmd.Context(), f.profile, maxProfileFile, fleet.ReadProfile)
		if err != nil {
			return fmt.Errorf("--profile %s: %w", f.profile, err)
		}
		o.Profile = &p
	}
	if f.trace == "" {
		return nil
	}
	t, err := fromFile(cmd.Context(), f.trace, maxTraceFile, fleet.ReadAnyTrace)
	if err != nil {
		return fmt.Errorf("--trace %s: %w", f.trace, err)
	}
	name := filepath.Base(f.trace)
	o.Trace, o.TraceName = t, printable(strings.TrimSuffix(name, filepath.Ext(name)))
	if cmd.Flags().Changed("duration") {
		return nil
	}
	if o.Duration = t.Length().Truncate(time.Second) + time.Minute; o.Duration > bench.MaxDuration {
		return fmt.Errorf("--trace %s: a replay would take %v; cut the trace, or give --duration, of at most %v, to replay its start", f.trace, o.Duration, bench.MaxDuration)
	}
	return nil
}

// interrupted says in words that the user ended a run.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted before the end; there is no result: %w", err)
	}
	return err
}

// counter shows how far a bench is: on one line of a terminal, elsewhere in about
// ten lines.
type counter struct {
	w       io.Writer // nil shows nothing
	inPlace bool
	shown   bool
}

func benchProgress(w io.Writer, wanted bool) *counter {
	if !wanted {
		return &counter{}
	}
	return &counter{w: w, inPlace: isTerminal(w)}
}

func (c *counter) show(done, total int, what string) {
	const lines = 10
	switch {
	case c.w == nil:
	case c.inPlace:
		c.shown = true
		fmt.Fprintf(c.w, "\r\x1b[K%d of %d runs: %s", done, total, what)
	case done*lines/total != (done-1)*lines/total:
		fmt.Fprintf(c.w, "%d of %d runs: %s\n", done, total, what)
	}
}

// end clears the line.
func (c *counter) end() {
	if c.shown {
		fmt.Fprint(c.w, "\r\x1b[K")
	}
}
