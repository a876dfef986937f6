package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
	err := errors.Join(
		within("evaluations", f.evaluations, 1, maxEvaluations),
		within("fit-seeds", f.runSeeds, 1, maxCalibrationSeeds),
	)
	if !(f.step > 0 && f.step <= 1) {
		err = errors.Join(err, fmt.Errorf("--step %v: want more than 0 and at most 1", f.step))
	}
	if _, free := fleet.FreeParameters(f.free); free != nil {
		err = errors.Join(err, fmt.Errorf("--free: %w", free))
	}
	return err
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
		Compare: all.FittedOnly(), Free: f.fit.free, Evaluations: f.fit.evaluations, Seed: f.fit.seed, Step: f.fit.step,
	}
	o.Compare.Seeds = seedsFrom(firstFitSeed, f.fit.runSeeds)
	state, err := openFitState(cmd.Context(), f.fit.resume, o)
	if err != nil {
		return inputError(cmd.Context(), fmt.Errorf("--resume %s: %w", f.fit.resume, err))
	}
	o.Done = state.Losses[:min(len(state.Losses), o.Evaluations)]
	found, err := f.search(cmd, o, state)
	if found.made == 0 || err != nil && !errors.Is(err, context.Canceled) {
		return inputError(cmd.Context(), err)
	}
	best := found.best
	best.Source = f.describe(all.Profile)
	outcome := validation.Fit{
		Evaluations: found.made, Loss: found.loss, Seed: o.Seed, RunSeeds: o.Compare.Seeds, Free: o.Free, Command: commandLine(cmd),
	}
	if err := writeProfile(f.fit.out, best); err != nil {
		return err
	}
	if found.saveErr != nil {
		return fmt.Errorf("--resume %s: %w; %s has the best so far", f.fit.resume, found.saveErr, f.fit.out)
	}
	if err != nil {
		return fmt.Errorf("interrupted after %d of %d evaluations; %s has the best so far%s", found.made, o.Evaluations, f.fit.out, f.goOn(cmd))
	}
	return f.writeReport(cmd, all, best, outcome)
}

// goOn is what an interrupted search can be taken up with.
func (f *calibrateFlags) goOn(cmd *cobra.Command) string {
	if f.fit.resume == "" {
		return ", and without --resume the same command begins anew"
	}
	return "; go on with: " + commandLine(cmd)
}

// found is what a search came to.
type found struct {
	best    fleet.Profile
	loss    float64
	made    int
	saveErr error
}

// search shows its progress and keeps its state.
func (f *calibrateFlags) search(cmd *cobra.Command, o fleet.FitOptions, state *fitState) (found, error) {
	show := fitProgress{w: cmd.ErrOrStderr(), inPlace: isTerminal(cmd.ErrOrStderr()), total: o.Evaluations}
	defer show.end()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	var s found
	o.Progress = func(p fleet.FitProgress) {
		s.made = p.Evaluation
		show.show(p)
		if s.saveErr = state.add(p); s.saveErr != nil {
			stop()
		}
	}
	var err error
	s.best, s.loss, err = fleet.Fit(ctx, o)
	return s, err
}

// describe says where a profile came from.
func (f *calibrateFlags) describe(base fleet.Profile) string {
	from := "the published matrix"
	if f.measurements != "" {
		from = f.measurements
	}
	if len(f.reports) > 0 {
		from += ", reports " + strings.Join(f.reports, ", ")
	}
	text := "kvtuner calibrate: " + base.Name + " fitted to " + from
	if len(text) > maxSource {
		return text[:maxSource]
	}
	return text
}

// maxSource is below what a profile may say of its source.
const maxSource = 500

func writeProfile(path string, p fleet.Profile) error {
	var b bytes.Buffer
	if err := fleet.WriteProfile(&b, p); err != nil {
		return err
	}
	if err := replaceFile(path, b.Bytes()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// writeReport holds the profile found, and the one the search began with,
// against all measurements.
func (f *calibrateFlags) writeReport(cmd *cobra.Command, all fleet.CompareOptions, best fleet.Profile, outcome validation.Fit) error {
	if f.fit.report == "" {
		return nil
	}
	progress := benchProgress(cmd.ErrOrStderr(), false)
	defer progress.end()
	for _, side := range []struct {
		what    string
		profile fleet.Profile
		check   *validation.Check
	}{{"report, before", all.Profile, &outcome.Before}, {"report, after", best, &outcome.After}} {
		o := all
		o.Profile = side.profile
		o.Progress = func(done, total int) { progress.show(done, total, side.what) }
		c, err := fleet.Compare(cmd.Context(), o)
		if err != nil {
			return fmt.Errorf("--report was not written, %s was: %w", f.fit.out, err)
		}
		*side.check = validation.Check{Profile: side.profile, Comparison: c, Seeds: o.Seeds, Duration: o.Duration}
	}
	var b bytes.Buffer
	if err := outcome.WriteReport(&b); err != nil {
		return err
	}
	if err := replaceFile(f.fit.report, b.Bytes()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
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
