package main

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/fleet/validation"
)

// calibrateFlags are what a calibration is asked for.
type calibrateFlags struct {
	check        bool
	format       *choice
	plots        string
	measurements string
	profile      string
	reports      []string
	runs         runFlags
	fit          fitFlags
	guidellm     guidellmFlags
}

// runFlags describe the simulated runs.
type runFlags struct {
	seeds     int
	firstSeed uint64
	duration  time.Duration
	parallel  int

	newTokens, outputTokens, corpusTokens int
}

func newCalibrateCommand() *cobra.Command {
	f := calibrateFlags{format: newChoice("table", "json", "markdown")}
	f.guidellm.policy = "load"
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit the simulated fleet to measurements, and check the fit",
		Long: `Fit the simulated fleet to measurements, and check the fit.

With --check nothing is fitted: every measured run is simulated under the
profile, the shipped one unless --profile names another, and the errors are
shown, apart for the reports it was fitted to and for those held out.

With --from-guidellm the reports of a GuideLLM benchmark become measurements on
standard output, to be collected in one file. The reports do not say what the
policy was, nor the share of the prompt that came from outside the GPU; add that
column where you know it. Check and fit with the benchmark's own --new-tokens,
--output-tokens and --corpus-tokens (different prefixes times their length).

Otherwise free parameters of a profile are fitted to the measurements, within
their ranges, by a seeded search (CMA-ES) that uses all cores for the runs of an
evaluation. The best profile goes to --out and what the fit is worth to --report.
With --resume the search keeps its state in a file and goes on from it, exactly
as if it had not been interrupted. SIGINT ends it with the best found so far.

A measurement file is CSV, one closed-loop run a line, with the columns
  report,prefix_tokens,concurrency,policy,min_external_reusable_tokens,
  max_waiting_requests,requests_per_s,output_tokens_per_s,ttft_mean_ms,
  ttft_p99_ms,itl_mean_ms,itl_p99_ms,waiting_mean,external_prompt_share_pct
(in one line). Policy is load, recompute or threshold; the two columns after it
belong to threshold, where 0 waiting requests is no gate. What was not measured is
empty; a report has each run once. Runs whose report is not among --reports are
held out: predicted, not fitted. docs/fleet-model.md lists the parameters of a
profile; at most 5000 runs and 4 MiB of measurements are read.`,
		Example: `  kvtuner calibrate --check --format json
  kvtuner calibrate --from-guidellm load.json --policy load --name mine > mine.csv
  kvtuner calibrate --measurements mine.csv --profile mine.json --out fitted.json --report fit.md --resume fit-state.json
  kvtuner calibrate --check --profile fitted.json --measurements mine.csv --format markdown > mine.md`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd)
	return cmd
}

func (f *calibrateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.check, "check", false, "show the errors of a profile and fit nothing")
	flags.Var(f.format, "format", "form of the check")
	flags.StringVar(&f.plots, "plots", "", "`DIR` to write the plots of --format markdown to, which then shows them")
	flags.StringVar(&f.measurements, "measurements", "", "measurement `FILE` (default the published matrix)")
	flags.StringVar(&f.profile, "profile", "", "profile `FILE` to check or to start from (default the shipped one)")
	flags.StringSliceVar(&f.reports, "reports", nil, "reports that are fitted, others are held out (default "+fleet.FittedReport+" of the published matrix, all of other files)")
	flags.IntVar(&f.runs.seeds, "seeds", 10, "seeds to simulate each run with for a check and for the report of a fit")
	flags.Uint64Var(&f.runs.firstSeed, "first-seed", 1, "first of the seeds")
	flags.DurationVar(&f.runs.duration, "duration", fleet.PublishedDuration, "virtual time of each run")
	flags.IntVar(&f.runs.parallel, "parallel", runtime.GOMAXPROCS(0), "runs at a time")
	flags.Lookup("parallel").DefValue = "all CPUs"
	flags.IntVar(&f.runs.newTokens, "new-tokens", publishedNew, "prompt tokens after the prefix in the measured runs")
	flags.IntVar(&f.runs.outputTokens, "output-tokens", publishedOutput, "output tokens in the measured runs")
	flags.IntVar(&f.runs.corpusTokens, "corpus-tokens", publishedCorpus, "tokens in all different prefixes of a measured run")
	f.fit.register(cmd)
	f.guidellm.register(cmd)
}

func (f *calibrateFlags) run(cmd *cobra.Command) error {
	mode, err := f.mode(cmd.Flags())
	if err != nil {
		return usage(err)
	}
	if mode == modeGuideLLM {
		return f.guidellm.run(cmd)
	}
	o, err := f.compareOptions(cmd.Context())
	if err != nil {
		return inputError(cmd.Context(), err)
	}
	if err := f.checkOutputs(); err != nil {
		return usage(err)
	}
	if mode == modeCheck {
		return f.runCheck(cmd, o)
	}
	return f.runFit(cmd, o)
}

// Of the published runs, which do not state their corpus.
const (
	publishedNew    = 256
	publishedOutput = 128
	publishedCorpus = 1 << 21
)

// shipped tells that nothing but what is in the program is checked.
func (f *calibrateFlags) shipped() bool {
	r := f.runs
	return f.profile == "" && f.measurements == "" && f.reports == nil &&
		r.newTokens == publishedNew && r.outputTokens == publishedOutput && r.corpusTokens == publishedCorpus
}

func (f *calibrateFlags) runCheck(cmd *cobra.Command, o fleet.CompareOptions) error {
	progress := benchProgress(cmd.ErrOrStderr(), false)
	o.Progress = func(done, total int) { progress.show(done, total, "simulated") }
	c, err := fleet.Compare(cmd.Context(), o)
	progress.end()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	check := validation.Check{
		Profile: o.Profile, Comparison: c, Seeds: o.Seeds, Duration: o.Duration,
		Shipped: f.shipped(), Plots: f.plots,
	}
	switch f.format.value {
	case "json":
		return check.WriteJSON(cmd.OutOrStdout())
	case "markdown":
		if err := f.writePlots(check); err != nil {
			return err
		}
		return check.WriteDocument(cmd.OutOrStdout(), commandLine(cmd))
	}
	return check.WriteTable(cmd.OutOrStdout())
}
