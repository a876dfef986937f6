package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/fleet/validation"
)

// fitFlags are about the search and its output.
type fitFlags struct {
	free        []string
	seed        uint64
	runSeeds    int
	evaluations int
	step        float64
	resume      string
	out         string
	report      string
}

// maxEvaluations keeps a typing error from running for days.
const maxEvaluations = 1_000_000

func (f *fitFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.free, "free", nil, "parameters to fit (default all that are fitted in the shipped profile)")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the search")
	flags.IntVar(&f.runSeeds, "fit-seeds", 2, "seeds to simulate each run with in an evaluation, from 1001 on")
	flags.IntVar(&f.evaluations, "evaluations", 400, "evaluations to make, those of a resumed search included")
	flags.Float64Var(&f.step, "step", 0.1, "first step of the search, relative")
	flags.StringVar(&f.resume, "resume", "", "`FILE` to keep the state of the search in and to go on from")
	flags.StringVar(&f.out, "out", "", "`FILE` to write the fitted profile to")
	flags.StringVar(&f.report, "report", "", "`FILE` to write the report of the fit to, in Markdown")
}

func (f *fitFlags) validate() error {
	switch {
	case f.evaluations < 1 || f.evaluations > maxEvaluations:
		return fmt.Errorf("evaluations %d: want 1 to %d", f.evaluations, maxEvaluations)
	case f.runSeeds < 1 || f.runSeeds > maxCalibrationSeeds:
		return fmt.Errorf("fit-seeds %d: want 1 to %d", f.runSeeds, maxCalibrationSeeds)
	case !(f.step > 0 && f.step <= 1):
		return fmt.Errorf("step %v: want more than 0 and at most 1", f.step)
	}
	return nil
}

// firstFitSeed is apart from the seeds of a check, so that a report does not
// flatter the fit.
const firstFitSeed = 1001

// runFit searches, writes the best profile, and says what it is worth. An
// interrupted search does so, too, and ends with an error.
func (f *calibrateFlags) runFit(cmd *cobra.Command, all fleet.CompareOptions) error {
	if err := f.fit.validate(); err != nil {
		return usage(err)
	}
	o := fleet.FitOptions{
		Compare: fittedOnly(all), Free: f.fit.free, Evaluations: f.fit.evaluations, Seed: f.fit.seed, Step: f.fit.step,
	}
	o.Compare.Seeds = seedsFrom(firstFitSeed, f.fit.runSeeds)
	state, err := openFitState(f.fit.resume, o)
	if err != nil {
		return usage(fmt.Errorf("--resume %s: %w", f.fit.resume, err))
	}
	o.Done = state.Losses
	if len(o.Done) > o.Evaluations {
		o.Done = o.Done[:o.Evaluations]
	}
	show := fitProgress{w: cmd.ErrOrStderr(), inPlace: isTerminal(cmd.ErrOrStderr()), total: o.Evaluations}
	made := 0
	var saveErr error
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	o.Progress = func(p fleet.FitProgress) {
		made = p.Evaluation
		show.show(p)
		if saveErr = state.add(p); saveErr != nil {
			stop()
		}
	}
	best, loss, err := fleet.Fit(ctx, o)
	show.end()
	if made == 0 || err != nil && !errors.Is(err, context.Canceled) {
		return usage(err)
	}
	best.Name, best.Source = f.describe(all.Profile)
	outcome := validation.Fit{
		Evaluations: made, Planned: o.Evaluations, Loss: loss, Seed: o.Seed, RunSeeds: o.Compare.Seeds, Free: o.Free, Command: f.fitCommand(),
	}
	// The user wants what was found: the outcome is written even after SIGINT.
	if err := f.writeFit(context.WithoutCancel(cmd.Context()), all, best, outcome); err != nil {
		return err
	}
	if saveErr != nil {
		return fmt.Errorf("--resume %s: %w; %s has the best so far", f.fit.resume, saveErr, f.fit.out)
	}
	if err != nil {
		return fmt.Errorf("interrupted after %d of %d evaluations; %s has the best so far", made, o.Evaluations, f.fit.out)
	}
	return nil
}

// fittedOnly holds back what is to be predicted.
func fittedOnly(o fleet.CompareOptions) fleet.CompareOptions {
	o.Measurements = slices.DeleteFunc(slices.Clone(o.Measurements), func(m fleet.Measurement) bool {
		if o.Fitted == nil {
			return m.Report != fleet.FittedReport
		}
		return !slices.Contains(o.Fitted, m.Report)
	})
	return o
}

// describe names the profile after where it came from.
func (f *calibrateFlags) describe(base fleet.Profile) (name, source string) {
	from := "the published matrix"
	if f.measurements != "" {
		from = f.measurements
	}
	if len(f.reports) > 0 {
		from += ", reports " + strings.Join(f.reports, ", ")
	}
	return base.Name, "kvtuner calibrate: " + base.Name + " fitted to " + from
}

func (f *calibrateFlags) writeFit(ctx context.Context, all fleet.CompareOptions, best fleet.Profile, outcome validation.Fit) error {
	var profile, report bytes.Buffer
	if err := fleet.WriteProfile(&profile, best); err != nil {
		return err
	}
	if err := renameio.WriteFile(f.fit.out, profile.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if f.fit.report == "" {
		return nil
	}
	for _, side := range []struct {
		profile fleet.Profile
		check   *validation.Check
	}{{all.Profile, &outcome.Before}, {best, &outcome.After}} {
		o := all
		o.Profile = side.profile
		c, err := fleet.Compare(ctx, o)
		if err != nil {
			return err
		}
		*side.check = validation.Check{Profile: side.profile, Comparison: c, Seeds: o.Seeds, Duration: o.Duration}
	}
	if err := outcome.WriteReport(&report); err != nil {
		return err
	}
	if err := renameio.WriteFile(f.fit.report, report.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// fitCommand is what the report says can be repeated.
func (f *calibrateFlags) fitCommand() string {
	args := []string{"kvtuner calibrate"}
	for _, a := range []struct{ flag, value string }{
		{"measurements", f.measurements}, {"profile", f.profile}, {"reports", strings.Join(f.reports, ",")}, {"free", strings.Join(f.fit.free, ",")},
	} {
		if a.value != "" {
			args = append(args, "--"+a.flag+" "+a.value)
		}
	}
	return fmt.Sprintf("%s --seed %d --evaluations %d --fit-seeds %d --step %v --duration %v --out %s",
		strings.Join(args, " "), f.fit.seed, f.fit.evaluations, f.fit.runSeeds, f.fit.step, f.runs.duration, f.fit.out)
}

// fitProgress shows a search: on one line of a terminal; elsewhere a line for
// each improvement and each 25th evaluation.
type fitProgress struct {
	w       io.Writer
	inPlace bool
	total   int
	least   float64
	shown   bool
}

func (s *fitProgress) show(p fleet.FitProgress) {
	better := p.Evaluation == 1 || p.Least < s.least
	s.least = p.Least
	text := fmt.Sprintf("evaluation %d of %d: loss %.4f, least %.4f", p.Evaluation, s.total, p.Loss, p.Least)
	switch {
	case p.Known:
	case s.inPlace:
		s.shown = true
		fmt.Fprint(s.w, "\r\x1b[K"+text)
	case better || p.Evaluation%25 == 0 || p.Evaluation == s.total:
		fmt.Fprintln(s.w, text)
	}
}

func (s *fitProgress) end() {
	if s.shown {
		fmt.Fprintln(s.w)
	}
}
