package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
)

func newExplainCommand() *cobra.Command {
	var pool string
	output := newChoice("text", "json")
	cmd := &cobra.Command{
		Use:   "explain ID|last",
		Short: "Show one decision and what it rests on",
		Long: `Show one decision as an on-call engineer wants to read it: the reason, what
changed, the effect with its interval, both arms, the samples, the alternatives,
and the queries ready to be pasted into Prometheus.

The ID may be cut short while it is the only one that starts so; "last" is the
newest decision.`,
		Example: `  kvtuner explain last --pool default
  kvtuner explain 20261130T161151Z-0007
  kvtuner explain last --output json | jq -r .evidence.queries[]`,
		Args: oneDecision,
	}
	from := addSource(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "look in this pool only")
	completePools(cmd, from.daemon)
	cmd.Flags().Var(output, "output", "form of the output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return from.read(cmd.Context(), func(r records) error {
			d, err := find(cmd.Context(), r, pool, args[0])
			if err != nil {
				return fmt.Errorf("explaining decision %s: %w", args[0], err)
			}
			if output.value == "json" {
				return writeJSON(cmd.OutOrStdout(), d)
			}
			return writeText(cmd.OutOrStdout(), func(w io.Writer) { explain(w, d) })
		})
	}
	return cmd
}

func oneDecision(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("%d arguments; give the ID of one decision (kvtuner history lists them), or last", len(args))
}

func find(ctx context.Context, r records, pool, id string) (store.Decision, error) {
	if id != "last" {
		return r.decision(ctx, pool, id)
	}
	filter := query("pool", pool)
	if filter == nil {
		filter = map[string][]string{}
	}
	filter.Set("limit", "1")
	found, err := r.list(ctx, filter)
	if err != nil {
		return store.Decision{}, err
	}
	if len(found.Decisions) == 0 {
		return store.Decision{}, notFound(fmt.Errorf("there are no decisions yet"))
	}
	newest := found.Decisions[0]
	return r.decision(ctx, newest.Pool, newest.ID)
}
