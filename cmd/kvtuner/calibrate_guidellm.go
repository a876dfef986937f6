package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// guidellmFlags say what GuideLLM reports to turn into measurements, and what
// they do not say.
type guidellmFlags struct {
	files  []string
	policy string
	name   string
	prefix int
}

func (g *guidellmFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&g.files, "from-guidellm", nil, "GuideLLM JSON `FILES` to turn into measurements")
	flags.StringVar(&g.policy, "policy", "load", "policy of the fleet in those files: load, recompute, or <tokens>+<waiting>")
	flags.StringVar(&g.name, "name", "guidellm", "name of the series of measurements, the column report")
	flags.IntVar(&g.prefix, "prefix-tokens", 0, "tokens of the shared prefix (default what the files say)")
}

func (g *guidellmFlags) run(cmd *cobra.Command) error {
	setting, err := fleet.ParseSetting(g.policy)
	if err != nil {
		return usage(fmt.Errorf("--policy: %w", err))
	}
	if g.prefix < 0 {
		return usage(fmt.Errorf("--prefix-tokens %d: must not be negative", g.prefix))
	}
	o := fleet.GuideLLMOptions{Report: g.name, Setting: setting, PrefixTokens: g.prefix}
	var all []fleet.Measurement
	for _, path := range g.files {
		found, err := fromFile(path, func(r io.Reader) ([]fleet.Measurement, error) { return fleet.ReadGuideLLM(r, o) })
		if err != nil {
			return usage(fmt.Errorf("--from-guidellm %s: %w", path, err))
		}
		all = append(all, found...)
	}
	return fleet.WriteMeasurements(cmd.OutOrStdout(), all)
}
