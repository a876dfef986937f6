package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/tuner"
)

func newRunCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Tune the pools of a configuration until told to stop",
		Long: `Run the daemon: one loop a pool, each at its own pace, and an HTTP server with
/metrics, /healthz, /readyz and the API that the other commands ask.

A broken Prometheus or pool does not end it: /readyz and "kvtuner status" say
what is wrong, and the parameters in force stay. It does not start with a
configuration that has errors (exit code 2), nor when its address is in use or
another daemon holds the history (exit code 1).

SIGINT or SIGTERM stops it cleanly; a second one kills it. Settings can be
overridden by environment variables, such as ` + tuner.EnvPrefix + `_PROMETHEUS_URL.`,
		Example: "  kvtuner run --config kvtuner.yaml\n  " + tuner.EnvPrefix + "_LOG_LEVEL=debug kvtuner run --config kvtuner.yaml",
		Args:    configIsAFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := tuner.LoadConfig(path)
			if err != nil {
				return usage(err)
			}
			log, err := newLogger(cmd.ErrOrStderr(), c.Log)
			if err != nil {
				return usage(err)
			}
			d, err := newDaemon(c, log, tickAtOnce)
			if err != nil {
				return fmt.Errorf("starting the daemon: %w", err)
			}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `FILE`: YAML, TOML or JSON")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag is defined one line up
	}
	return cmd
}

// configIsAFlag says how to give a configuration to who gave it as an argument.
func configIsAFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; a configuration is given as --config %s", args[0], args[0])
}

func newLogger(w io.Writer, c tuner.LogConfig) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
