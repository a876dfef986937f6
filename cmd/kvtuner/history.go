package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner/web"
)

func newHistoryCommand() *cobra.Command {
	output := newChoice("table", "json", "csv")
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List decisions, newest first",
		Long: `List the decisions of all pools, newest first, from a running daemon or, with
--db, from the history's file while no daemon holds it.

Kinds: ` + web.KindNames() + `.
--since and --until take a time such as 2026-11-30T16:00:00Z, or a duration
before now such as 90m or 7d; --since is inclusive, --until is not.`,
		Example: `  kvtuner history --pool default --since 24h
  kvtuner history --kind move,abort --output csv > moves.csv
  kvtuner history --db /var/lib/kvtuner/history.db --limit 5`,
		Args: cobra.NoArgs,
	}
	from := addSource(cmd)
	filter := addFilter(cmd)
	completePools(cmd, from.daemon)
	completeKinds(cmd)
	cmd.Flags().Var(output, "output", "form of the output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := web.ParseFilter(filter(), time.Now()); err != nil {
			return usage(fmt.Errorf("--%w", err)) // which names the flag first
		}
		return from.read(cmd.Context(), func(r records) error {
			found, err := r.list(cmd.Context(), filter())
			if err != nil {
				return fmt.Errorf("listing decisions: %w", err)
			}
			if err := writeHistory(cmd.OutOrStdout(), found, output.value); err != nil {
				return err
			}
			if found.Truncated && output.value != "json" {
				fmt.Fprintf(cmd.ErrOrStderr(), "kvtuner: there are older decisions; raise --limit (at most %d) or move --until back\n", web.MaxLimit)
			}
			return nil
		})
	}
	return cmd
}

// addFilter adds the flags that select decisions and returns what they say, as
// parameters of the API.
func addFilter(cmd *cobra.Command) func() url.Values {
	flags := cmd.Flags()
	flags.String("pool", "", "of this pool only")
	flags.StringSlice("kind", nil, "of these kinds only, separated by commas")
	flags.String("since", "", "from this time on")
	flags.String("until", "", "before this time")
	flags.Int("limit", web.DefaultLimit, fmt.Sprintf("at most this many, up to %d", web.MaxLimit))
	return func() url.Values {
		values := url.Values{}
		for _, name := range []string{"pool", "since", "until", "limit"} {
			if s := flags.Lookup(name).Value.String(); s != "" {
				values.Set(name, s)
			}
		}
		if kinds, err := flags.GetStringSlice("kind"); err == nil && len(kinds) > 0 {
			values["kind"] = kinds
		}
		return values
	}
}

func writeHistory(w io.Writer, found web.DecisionsResponse, form string) error {
	switch form {
	case "json":
		return writeJSON(w, found)
	case "csv":
		return writeCSV(w, found.Decisions)
	}
	return writeText(w, func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tTIME\tPOOL\tKIND\tMODE\tREVISION\tCHANGE\tREASON")
		for _, d := range found.Decisions {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				d.ID, stamp(d.Time), d.Pool, d.Kind, d.Mode, revision(d), arrow(d), oneLine(d.Reason))
		}
		t.Flush()
	})
}

// revision is a dash for a decision that wrote none.
func revision(d store.Decision) string {
	if d.Revision == 0 {
		return "-"
	}
	return strconv.FormatInt(d.Revision, 10)
}

func writeCSV(w io.Writer, decisions []store.Decision) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"id", "time", "pool", "kind", "mode", "revision", "trial", "from", "to", "reason", "actor"}}
	for _, d := range decisions {
		rows = append(rows, []string{
			d.ID, d.Time.UTC().Format(time.RFC3339), d.Pool, string(d.Kind), d.Mode,
			strconv.FormatInt(d.Revision, 10), d.Trial, d.From.String(), d.To.String(), printable(oneLine(d.Reason)), printable(oneLine(d.Actor)),
		})
	}
	if err := c.WriteAll(rows); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
