package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
)

// replayFlags are what a replay is asked for.
type replayFlags struct {
	config, pool, from, to, tsdb string
	format                       *choice
	progress                     bool
}

func newReplayCommand() *cobra.Command {
	f := replayFlags{format: newChoice("table", "json")}
	cmd := &cobra.Command{
		Use:   "replay --config FILE",
		Short: "Say what would have been decided on the past, and what it would have gained",
		Long: `Go through Prometheus' past as the tuner would have in mode observe: what it would
have tried and when, when it would have held, what restores and recomputes cost,
and, by those costs, what other token minimums would have gained. Nothing is
written anywhere, and the same data give the same answer.

The past comes from the configuration's Prometheus, from --from to --to (the last
24 hours), or with --tsdb from a directory: a snapshot of a Prometheus, or the data
of one that is stopped; then all of it unless --from and --to say otherwise. Both
take a time such as 2026-11-30T16:00:00Z or a duration before the end such as 6h.

A trial that did not happen cannot be seen afterwards. What is under "measured" was
in Prometheus; what is under "predicted" is the cost curves' word, which no trial has
confirmed: restores slow each other, so that after a move costs are not the same.`,
		Example: `  kvtuner replay --config kvtuner.yaml --from 24h
  kvtuner replay --config kvtuner.yaml --tsdb data/snapshots/20261130T160000Z-1f --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration `FILE`, as run has it")
	flags.StringVar(&f.pool, "pool", "", "pool to replay, if the configuration has several")
	flags.StringVar(&f.from, "from", "", "begin here")
	flags.StringVar(&f.to, "to", "", "end here")
	flags.StringVar(&f.tsdb, "tsdb", "", "read this `DIRECTORY` of a TSDB instead of asking Prometheus")
	flags.Var(f.format, "format", "form of the output")
	flags.BoolVar(&f.progress, "progress", false, "show progress on standard error even if it is no terminal")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag is defined a few lines up
	}
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command) error {
	c, err := tuner.LoadConfig(f.config)
	if err != nil {
		return usage(err)
	}
	settings, err := f.settings(c)
	if err != nil {
		return usage(err)
	}
	r := tuner.Replay{Settings: settings, QueryTimeout: c.Prometheus.Timeout}
	release, err := f.source(cmd.Context(), c, &r)
	if err != nil {
		return usage(err)
	}
	defer release()
	progress := benchProgress(cmd.ErrOrStderr(), f.progress)
	r.Progress = func(done, total int) {
		if done%100 == 0 || done == total {
			progress.show(done, total, "steps")
		}
	}
	report, err := r.Run(cmd.Context())
	progress.end()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	if f.format.value == "json" {
		return writeJSON(cmd.OutOrStdout(), report)
	}
	return writeText(cmd.OutOrStdout(), func(w io.Writer) { replayText(w, report) })
}

func (f *replayFlags) settings(c tuner.Config) (tuner.Settings, error) {
	var found []tuner.Settings
	for _, p := range c.Pools {
		if f.pool == "" || f.pool == p.Name {
			found = append(found, p.Settings)
		}
	}
	switch {
	case len(found) == 0:
		return tuner.Settings{}, fmt.Errorf("pool: %q is not in %s", f.pool, f.config)
	case len(found) > 1:
		return tuner.Settings{}, fmt.Errorf("pool: %s has %d pools; name one with --pool", f.config, len(found))
	}
	return found[0], nil
}

// source gives a replay its Prometheus and its stretch of time.
func (f *replayFlags) source(ctx context.Context, c tuner.Config, r *tuner.Replay) (release func(), err error) {
	if f.tsdb != "" {
		return f.archive(ctx, r)
	}
	client, err := connect.New(c.Prometheus)
	if err != nil {
		return nil, err
	}
	r.Prometheus = client
	now := time.Now().Truncate(time.Second)
	return client.Close, f.span(r, now.Add(-24*time.Hour), now)
}

func (f *replayFlags) archive(ctx context.Context, r *tuner.Replay) (release func(), err error) {
	a, err := prom.OpenArchive(f.tsdb)
	if err != nil {
		return nil, fmt.Errorf("tsdb: %w", err)
	}
	release = func() { _ = a.Close() } // of files that were only read
	defer func() {
		if err != nil {
			release()
		}
	}()
	selector := r.Settings.PluginSeries()
	first, last, ok, err := a.Span(ctx, selector)
	if err == nil && !ok {
		err = fmt.Errorf("tsdb: %s holds no series %s: is it this pool's Prometheus, and does pluginSelector fit?", f.tsdb, selector)
	}
	if err == nil {
		err = f.span(r, first, last)
	}
	if err == nil && (r.To.Before(first) || r.From.After(last)) {
		err = fmt.Errorf("from, to: %s to %s lies outside the data, which is from %s to %s", stamp(r.From), stamp(r.To), stamp(first), stamp(last))
	}
	r.Prometheus = a
	return release, err
}

// span is the stretch asked for, else from first to last.
func (f *replayFlags) span(r *tuner.Replay, first, last time.Time) (err error) {
	if r.To, err = moment("to", f.to, last, last); err != nil {
		return err
	}
	if r.From, err = moment("from", f.from, first, r.To); err != nil {
		return err
	}
	if !r.From.Before(r.To) {
		return fmt.Errorf("from, to: %s is not before %s", stamp(r.From), stamp(r.To))
	}
	return nil
}

// moment reads a time, or a duration before end.
func moment(name, s string, otherwise, end time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := model.ParseDuration(s); err == nil && d > 0 {
		return end.Add(-time.Duration(d)), nil
	}
	return time.Time{}, fmt.Errorf("%s: %q is neither a time such as 2026-11-30T16:00:00Z nor a duration such as 6h or 7d", name, s)
}

func replayText(w io.Writer, r tuner.ReplayReport) {
	m, p := r.Measured, r.Predicted
	fmt.Fprintf(w, "pool %s from %s to %s, in steps of %v\n\n", r.Pool, stamp(r.From), stamp(r.To), time.Duration(r.StepSeconds)*time.Second)
	fmt.Fprintf(w, "measured: %d steps ok, %d idle, %d unknown; %d with a trial, %d that show a collapse\n", m.OK, m.Idle, m.Unknown, m.InTrial, m.Collapsing)
	fmt.Fprintf(w, "          %.0f requests; %s s is the cost of one\n\n", m.Requests, number(m.Cost))
	fmt.Fprintf(w, "decisions in mode observe: %d\n", len(r.Decisions))
	for _, d := range r.Decisions {
		fmt.Fprintf(w, "  %s  %-8s %s  %s\n", stamp(d.Time), d.Kind, arrow(d), oneLine(d.Reason))
	}
	fmt.Fprintf(w, "\ncost curves: %d steps have them", p.Steps)
	crossovers(w, r.Steps)
	if p.Steps == 0 {
		fmt.Fprintln(w, "\npredicted: nothing, for want of cost curves")
		return
	}
	fmt.Fprintf(w, "\npredicted by the cost curves; no trial has confirmed it, and queue limits are not predicted\n")
	fmt.Fprintf(w, "  the suggestions, each from its next step on: %s (%d steps, in %d the queue limit differs, too)\n", gain(p.Suggested), p.SuggestedSteps, p.NotPredicted)
	fmt.Fprintln(w, "  one token minimum all along:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range p.Minimums {
		fmt.Fprintf(t, "    %s\t%s\n", g.Minimum, gain(g))
	}
	t.Flush()
}

func gain(g tuner.ReplayGain) string {
	return fmt.Sprintf("%+.0f s of end-to-end time saved (%+.0f to %+.0f), %s", g.Seconds, g.Low, g.High, signed(g.Share))
}

// crossovers shows where the crossover was, line by line as it changes.
func crossovers(w io.Writer, steps []tuner.ReplayStep) {
	const shown = 20
	var last tuner.Crossover
	n := 0
	fmt.Fprintln(w, "; where restoring begins to pay, in reusable tokens")
	for _, s := range steps {
		if s.Crossover == nil || *s.Crossover == last {
			continue
		}
		last = *s.Crossover
		if n++; n > shown {
			continue
		}
		fmt.Fprintf(w, "  %s  from %s (%s to %s), %s in force\n", stamp(s.Time), tokens(last.Tokens), tokens(last.Low), tokens(last.High), s.Params)
	}
	if n > shown {
		fmt.Fprintf(w, "  and %d more changes; --format json has every step\n", n-shown)
	}
}

func tokens(t store.Tokens) string {
	if t == store.Never {
		return "never"
	}
	return t.String()
}
