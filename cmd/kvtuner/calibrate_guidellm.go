package main

import (
	"bytes"
	"errors"
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
	if cmd.Flags().Changed("prefix-tokens") {
		if err := within("prefix-tokens", g.prefix, 1, 1<<24); err != nil {
			return usage(err)
		}
	}
	if len(g.files) == 0 {
		return usage(errors.New("--from-guidellm: want at least one file"))
	}
	o := fleet.GuideLLMOptions{Report: g.name, Setting: setting, PrefixTokens: g.prefix}
	var tokens [2]int
	o.Told = func(newTokens, outputTokens int) { tokens = [2]int{newTokens, outputTokens} }
	var all []fleet.Measurement
	for _, path := range g.files {
		found, err := fromFile(cmd.Context(), path, maxGuideLLMFile, func(r io.Reader) ([]fleet.Measurement, error) { return fleet.ReadGuideLLM(r, o) })
		if err != nil {
			return inputError(cmd.Context(), fmt.Errorf("--from-guidellm %s: %w", path, err))
		}
		all = append(all, found...)
	}
	var b bytes.Buffer
	if err := fleet.WriteMeasurements(&b, all); err != nil {
		return usage(fmt.Errorf("--from-guidellm: %w", err))
	}
	if _, err := cmd.OutOrStdout().Write(b.Bytes()); err != nil {
		return err
	}
	if tokens[0] > 0 && tokens[1] > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "check and fit these with --new-tokens %d --output-tokens %d, what the last benchmark had beside its prefix\n", tokens[0], tokens[1])
	}
	return nil
}
