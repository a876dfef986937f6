package main

import (
	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
)

// completePools lets a shell complete --pool with what the daemon tunes.
func completePools(cmd *cobra.Command, daemon *endpoint) {
	complete(cmd, "pool", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := newClient(*daemon)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := c.status(cmd.Context(), "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return poolNames(s), cobra.ShellCompDirectiveNoFileComp
	})
}

func completeKinds(cmd *cobra.Command) {
	complete(cmd, "kind", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, k := range store.Kinds() {
			names = append(names, string(k))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// complete registers a flag's completion; the flag must exist.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // a mistake of this program
	}
}
