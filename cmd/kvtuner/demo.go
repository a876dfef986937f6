package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	pages "github.com/kvtuner/kvtuner/internal/report"
)

// demoFlags are what a demo is asked for.
type demoFlags struct {
	seed     uint64
	duration time.Duration
	report   string
	noReport bool
}

func newDemoCommand() *cobra.Command {
	f := demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch the tuner on a simulated fleet whose storage turns slow",
		Long: `Watch the tuner on a simulated fleet, in virtual time: storage turns four times
slower, the workload shifts, storage recovers. The tuner, its Prometheus queries
and the request policy are the real ones; the GPUs are a model.

The same requests meet four policies: the tuner, the published fixed pair 1024+8,
always restoring and always recomputing. At the end there is a table, the path of
both thresholds, the reason of each decision, and a report as one HTML file.

Progress goes to standard error, redrawn in place on a terminal. The same
arguments give the same output and the same report, to the byte.`,
		Example: `  kvtuner demo
  kvtuner demo --seed 7 --duration 1h --report tuned.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.seed, "seed", 1, "seed of everything random")
	flags.DurationVar(&f.duration, "duration", demoDuration, "virtual time of the whole demo, shared by its phases; short ones leave the tuner no time to act")
	flags.StringVar(&f.report, "report", filepath.Join("report", "demo.html"), "file to write the report to")
	flags.BoolVar(&f.noReport, "no-report", false, "write no report")
	cmd.MarkFlagsMutuallyExclusive("report", "no-report")
	cmd.AddCommand(newDemoServeCommand())
	return cmd
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	phases, err := demoPhases(f.duration)
	if err != nil {
		return usage(err)
	}
	file, err := f.openReport()
	if err != nil {
		return err
	}
	defer file.discard()
	display := newDisplay(cmd.ErrOrStderr(), f.seed, phases)
	story, err := runDemo(cmd.Context(), f.seed, phases, display.show)
	display.end()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	if err := writeText(cmd.OutOrStdout(), demoText(story)); err != nil {
		return err
	}
	return file.finish(cmd, story)
}

// reportFile is the report to be: in place only once it is complete.
type reportFile struct {
	path    string
	pending *renameio.PendingFile // nil for no report
}

// openReport finds out before a long run whether the report can be written.
func (f *demoFlags) openReport() (*reportFile, error) {
	if f.noReport {
		return &reportFile{}, nil
	}
	if err := os.MkdirAll(filepath.Dir(f.report), 0o755); err != nil {
		return nil, reportError(f.report, err)
	}
	if info, err := os.Stat(f.report); err == nil && info.IsDir() {
		return nil, usage(fmt.Errorf("report %s is a directory; name a file with --report", f.report))
	}
	pending, err := renameio.NewPendingFile(f.report, renameio.WithPermissions(0o644))
	if err != nil {
		return nil, reportError(f.report, err)
	}
	return &reportFile{f.report, pending}, nil
}

func reportError(path string, err error) error {
	return fmt.Errorf("report %s cannot be written: %w; name another file with --report, or use --no-report", path, err)
}

func (r *reportFile) finish(cmd *cobra.Command, story pages.Story) error {
	if r.pending == nil {
		return nil
	}
	if err := story.Write(r.pending); err != nil {
		return reportError(r.path, err)
	}
	if err := r.pending.CloseAtomicallyReplace(); err != nil {
		return reportError(r.path, err)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "\nReport: %s\n", r.path)
	return err
}

// discard removes what was not finished.
func (r *reportFile) discard() {
	if r.pending != nil {
		_ = r.pending.Cleanup() // nothing to remove after finish
	}
}
