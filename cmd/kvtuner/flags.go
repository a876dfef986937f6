package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is a flag with a closed set of values, the first being the default.
type choice struct {
	value   string
	allowed []string
}

func newChoice(allowed ...string) *choice { return &choice{allowed[0], allowed} }

func (c *choice) String() string { return c.value }

func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("use %s", strings.Join(c.allowed, " or "))
	}
	c.value = s
	return nil
}

// knownCommand refuses an argument of the root that is no command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q%s; see kvtuner --help", args[0], didYouMean(cmd, args[0], ""))
}

// suggestFlag adds the flags of a similar name to the error about an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return invalidValue(cmd, invalid)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	// cobra measures how similar names of commands are; flags borrow that.
	names := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return fmt.Errorf("%w%s; see %s --help", err, didYouMean(names, unknown.GetSpecifiedName(), "--"), cmd.CommandPath())
}

// valuesOf says what a flag of a type takes.
var valuesOf = map[string]string{
	"int": "want a whole number", "uint64": "want a whole number from 0", "float64": "want a number", "bool": "want true or false",
	"duration": "want a duration with a unit, such as 90s, 25m or 1h",
}

// invalidValue names flag, value and what is allowed, without Go's own words.
func invalidValue(cmd *cobra.Command, err *pflag.InvalidValueError) error {
	allowed, ok := valuesOf[err.GetFlag().Value.Type()]
	if !ok {
		allowed = err.Unwrap().Error()
	}
	return fmt.Errorf("--%s %q: %s; see %s --help", err.GetFlag().Name, err.GetValue(), allowed, cmd.CommandPath())
}

func didYouMean(cmd *cobra.Command, name, prefix string) string {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	similar := cmd.SuggestionsFor(name)
	if len(similar) == 0 {
		return ""
	}
	return " (did you mean " + prefix + strings.Join(similar, ", "+prefix) + "?)"
}
