package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

func newStatusCommand() *cobra.Command {
	var pool string
	output := newChoice("text", "json")
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon is doing with each pool",
		Long: `Ask a running daemon what it is doing: per pool the parameters in force, the
trial in progress, the signals of late and the last decisions.

Exit code 4 if a pool shown is not being tuned; the reason is in the output.`,
		Example: "  kvtuner status\n  kvtuner status --pool default --output json | jq .pools[0].incumbent",
		Args:    cobra.NoArgs,
	}
	daemon := addEndpoint(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "show this pool only")
	completePools(cmd, daemon)
	cmd.Flags().Var(output, "output", "form of the output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newClient(cmd.Context(), *daemon)
		if err != nil {
			return err
		}
		s, err := c.status(cmd.Context(), pool)
		if err != nil {
			return err
		}
		if err := writeStatus(cmd.OutOrStdout(), s, output.value); err != nil {
			return err
		}
		return readiness(s)
	}
	return cmd
}

func readiness(s web.StatusResponse) error {
	var waiting []string
	for _, p := range s.Pools {
		if !p.Ready {
			waiting = append(waiting, p.Pool)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return notReady(fmt.Errorf("status: not ready: %s", strings.Join(waiting, ", ")))
}

func writeStatus(w io.Writer, s web.StatusResponse, form string) error {
	if form == "json" {
		return writeJSON(w, s)
	}
	width := newTextWidth(w)
	return writeText(w, func(w io.Writer) {
		fmt.Fprintf(w, "kvtuner %s, %d pool(s)\n", s.Version, len(s.Pools))
		for _, p := range s.Pools {
			writePool(w, p, width)
		}
	})
}

func writePool(w io.Writer, s web.PoolStatus, width textWidth) {
	fmt.Fprintf(w, "\npool %s\n", s.Pool)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "  %s\t%s\n", name, oneLine(value)) }
	row("mode", modeWords(string(s.Mode)))
	if s.Ready {
		row("ready", "yes")
		row("doing", s.Doing)
	} else {
		row("ready", "no: "+s.NotReady)
	}
	if s.Paused != nil {
		row("paused", strings.TrimPrefix(s.Paused.String(), "paused "))
	}
	if p := s.Proposal; p != nil {
		row("proposal", fmt.Sprintf("%s of %s, until %s: %s", p.ID, p.Candidate, stamp(p.Until), p.Why))
	}
	if s.Incumbent != nil {
		row("incumbent", paramsWords(*s.Incumbent))
		row("revision", fmt.Sprint(s.Revision))
	}
	if !s.At.IsZero() {
		row("last step", stamp(s.At))
	}
	if s.LastState != "" {
		row("last sample", stateWords(string(s.LastState), s.LastWhy))
	}
	if s.Trial != nil {
		row("trial", fmt.Sprintf("%s of %s, %s in force, %d candidate block(s): %s", s.Trial.ID, s.Trial.Candidate, s.Trial.Arm, s.Trial.Blocks, s.Trial.Why))
		if s.Trial.Effect != nil {
			row("effect so far", effectWords(*s.Trial.Effect))
		}
	}
	t.Flush()
	writeRecent(w, s.Recent)
	writeAmiss(w, s.Preflight, width)
	writeBrief(w, s.Decisions)
}

func writeRecent(w io.Writer, recent map[string]float64) {
	if len(recent) == 0 {
		return
	}
	fmt.Fprintln(w, "  incumbent of late")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range signalOrder(slices.Collect(maps.Keys(recent))) {
		fmt.Fprintf(t, "    %s\t%s\n", name, withUnit(name, recent[name]))
	}
	t.Flush()
}

// writeAmiss lists what is wrong with the set-up, and the remedies.
func writeAmiss(w io.Writer, findings []tuner.Finding, width textWidth) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintln(w, "  amiss (kvtuner check looks at everything)")
	for _, f := range findings {
		width.finding(w, "    ", f)
	}
}

// writeBrief lists decisions, newest first, a line each.
func writeBrief(w io.Writer, decisions []store.Decision) {
	if len(decisions) == 0 {
		return
	}
	fmt.Fprintln(w, "  decisions since start, newest first (kvtuner explain ID shows why)")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range decisions {
		fmt.Fprintf(t, "    %s\t%s\t%s\t%s\n", d.ID, d.Kind, arrow(d), oneLine(d.Reason))
	}
	t.Flush()
}

func stateWords(state, why string) string {
	if why == "" {
		return state
	}
	return state + ": " + why
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
