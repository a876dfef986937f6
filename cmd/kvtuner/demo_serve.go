package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
)

const (
	serveScrape = 5 * time.Second
	// servePast is how much of the fleet's past Prometheus has at start.
	servePast = 15 * time.Minute
)

func newDemoServeCommand() *cobra.Command {
	var scenario string
	o := liveOptions{pool: "demo", scrape: serveScrape, initial: store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a simulated fleet and its Prometheus, to try the daemon on",
		Long: `Serve a simulated fleet in real time, with the plugin that decides for it and the
Prometheus that scrapes both, until told to stop: all that a daemon needs, on a
machine without GPU or Kubernetes. Prometheus holds a quarter of an hour at start.

The plugin has 1024+8 of its own, and watches the file --document as a real one
watches tuning.file: store.file of the daemon's configuration must name the same.

Scenarios: ` + strings.Join(fleet.Names(), ", ") + ".",
		Example: `  kvtuner demo serve &
  kvtuner check --detect --prometheus http://127.0.0.1:9090 > kvtuner.yaml
  kvtuner run --config kvtuner.yaml`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:9090", "loopback `ADDRESS` of Prometheus")
	f.StringVar(&o.document, "document", "demo-parameters.json", "`FILE` with the parameter document, which may come later")
	f.StringVar(&scenario, "scenario", "8k-c32-slow-storage", "`NAME` of what the fleet serves")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.scenario, err = fleet.ByName(scenario); err != nil {
			return usage(fmt.Errorf("--scenario: %w", err))
		}
		now := time.Now()
		o.start = now.Add(-servePast)
		l, err := newLive(o)
		if err != nil {
			return fmt.Errorf("serving a fleet: %w", err)
		}
		defer func() { err = errors.Join(err, l.server.Close()) }()
		if err := l.pass(cmd.Context(), now); err != nil {
			return interrupted(cmd.Context(), err)
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Prometheus of %s: %s\nparameter document: %s\n", scenario, l.url, o.document); err != nil {
			return err
		}
		return l.run(cmd.Context(), tickAtOnce(cmd.Context(), time.Second))
	}
	return cmd
}
