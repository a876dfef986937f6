package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
)

// completePools lets a shell complete --pool with what the daemon tunes.
func completePools(cmd *cobra.Command, daemon *endpoint) {
	complete(cmd, "pool", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := newClient(cmd.Context(), *daemon)
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

// strict makes cobra's own commands, completion and help, refuse what they do not
// know.
func strict(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = knownShell, func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Args = knownTopic
		}
	}
}

func knownShell(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("no completion for %q; there is one for %s", args[0], names(c.Commands()))
}

func knownTopic(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err == nil && len(rest) == 0 {
		return nil
	}
	return fmt.Errorf("no help on %q%s; there is help on %s", strings.Join(args, " "), didYouMean(found, args[len(args)-1], ""), names(c.Root().Commands()))
}

// names of the commands that help lists.
func names(all []*cobra.Command) string {
	var out []string
	for _, c := range all {
		if c.IsAvailableCommand() {
			out = append(out, c.Name())
		}
	}
	return strings.Join(out, ", ")
}
