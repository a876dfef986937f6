package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
	"github.com/kvtuner/kvtuner/tuner/kube"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

func newCheckCommand() *cobra.Command {
	var path, address, pool string
	var detect bool
	format := newChoice("text", "json")
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look at a set-up and say what is wrong with it, and the fix",
		Long: `Look at what "kvtuner run" would work with: Prometheus, the engines, the plugin in
the Endpoint Picker, the parameter document, the schedule. Each finding names the
setting and the remedy. Nothing is changed; a daemon may be running.

--detect finds the preset, the labels and the pools from what Prometheus holds, and
prints a configuration to start from; with --prometheus it needs no configuration. A
Prometheus that wants a login is named by --config, of which nothing but the section
prometheus is read; what is printed then goes behind it.

Exit code 6 if there are warnings, 7 if there are errors, 2 if the configuration
itself is refused.`,
		Example: `  kvtuner check --config kvtuner.yaml
  kvtuner check --detect --prometheus http://prometheus:9090 > kvtuner.yaml
  kvtuner check --detect --config kvtuner.yaml >> kvtuner.yaml
  kvtuner check --config kvtuner.yaml --format json | jq '.pools[].findings[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `FILE`: YAML, TOML or JSON")
	cmd.Flags().StringVar(&address, "prometheus", "", "with --detect: `URL` of Prometheus, instead of a configuration")
	cmd.Flags().StringVar(&pool, "pool", "", "check this pool only")
	cmd.Flags().BoolVar(&detect, "detect", false, "find preset, labels and pools")
	cmd.Flags().Var(format, "format", "form of the output")
	cmd.MarkFlagsMutuallyExclusive("config", "prometheus")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if path == "" && address == "" {
			return usage(errors.New("nothing to check; give --config FILE, or --detect --prometheus URL to have a configuration written"))
		}
		if address != "" && !detect {
			return usage(errors.New("--prometheus: is for --detect; give --config to check a set-up"))
		}
		c, err := checkedConfig(path, address, detect)
		if err != nil {
			return usage(err)
		}
		client, err := connect.New(c.Prometheus)
		if err != nil {
			return usage(err)
		}
		defer client.Close()
		if detect {
			return runDetect(cmd.Context(), cmd.OutOrStdout(), c.Prometheus, client, path, format.value)
		}
		return runCheck(cmd.Context(), cmd.OutOrStdout(), c, client, pool, format.value)
	}
	return cmd
}

func checkedConfig(path, address string, detect bool) (c tuner.Config, err error) {
	switch {
	case path != "" && detect:
		c.Prometheus, err = tuner.LoadPrometheus(path)
		return c, err
	case path != "":
		return tuner.LoadConfig(path)
	}
	c = tuner.Config{Prometheus: tuner.PrometheusConfig{URL: address, Timeout: 10 * time.Second}}
	return c, c.Prometheus.Validate()
}

func runCheck(ctx context.Context, w io.Writer, c tuner.Config, client *connect.Client, pool, format string) error {
	k, err := newCluster(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer k.close()
	pools, reports, err := lookForPools(ctx, c, k)
	if err != nil {
		return err
	}
	if pool != "" {
		reports = nil // on objects, which are no pools
	}
	for _, p := range pools {
		if pool != "" && p.Name != pool {
			continue
		}
		r, err := checkPool(ctx, c, p, client, k)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return noPoolToCheck(pool)
	}
	if err := writeReports(w, reports, format); err != nil {
		return err
	}
	return verdict(reports)
}

func noPoolToCheck(pool string) error {
	if pool == "" {
		return notFound(errors.New("kubernetes.discover: no object of the cluster stands for a pool; label one"))
	}
	return notFound(fmt.Errorf("--pool: the configuration has no pool %q, and none is discovered", pool))
}

// lookForPools adds those that the cluster has to those of the configuration, and
// reports on the objects that cannot stand for one.
func lookForPools(ctx context.Context, c tuner.Config, k *cluster) ([]tuner.PoolConfig, []preflight.Report, error) {
	if !c.Kubernetes.Discover.Enabled() {
		return c.Pools, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	watch, err := kube.NewDiscovery(k.Cluster, c.Kubernetes.Discover, k.log)
	if err != nil {
		return nil, nil, usage(fmt.Errorf("setting kubernetes.%w", err))
	}
	sight, err := watch.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	d := discovery{config: c, namespace: k.Namespace}
	wanted, refused := d.sift(sight.Objects)
	pools := slices.Clone(c.Pools)
	for _, w := range wanted {
		pools = append(pools, w.config)
	}
	var reports []preflight.Report
	for _, r := range refused {
		f := tuner.Finding{Check: "discovery", Level: tuner.Failure, Found: "refused: " + r.why, Setting: kube.SettingsAnnotation, Fix: "correct the object's label or annotation"}
		reports = append(reports, preflight.Report{Pool: r.name(), At: time.Now(), Findings: []tuner.Finding{f}})
	}
	return pools, reports, nil
}

func checkPool(ctx context.Context, c tuner.Config, p tuner.PoolConfig, client *connect.Client, k *cluster) (preflight.Report, error) {
	documents, err := documentsToRead(p, k)
	if err != nil {
		return preflight.Report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return preflight.Run(ctx, preflight.Options{
		Settings: p.Settings, Prometheus: client, QueryTimeout: c.Prometheus.Timeout, Documents: documents, Now: time.Now,
		Writable: func() map[string]error {
			w := map[string]error{"history.path": writable(c.History.Path)}
			if p.Store.File != "" {
				w["store"] = writable(p.Store.File)
			}
			return w
		},
	})
}

// documentsToRead opens the pool's documents without taking them over.
func documentsToRead(p tuner.PoolConfig, k *cluster) (preflight.Documents, error) {
	if p.Store.File != "" {
		return store.OpenFileReader(store.FileOptions{Path: p.Store.File, Pool: p.Name})
	}
	p.Mode = tuner.Observe
	return k.documents(p, true)
}

// checkTimeout bounds all questions of one look.
const checkTimeout = 2 * time.Minute

// writable tries, beside the file, what replacing it takes.
func writable(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s does not exist", dir)
	}
	f, err := os.CreateTemp(dir, ".kvtuner-check-*")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// verdict is the exit code of the gravest finding.
func verdict(reports []preflight.Report) error {
	failures, warnings := 0, 0
	for _, r := range reports {
		for _, f := range r.Amiss() {
			if f.Level == tuner.Failure {
				failures++
			} else {
				warnings++
			}
		}
	}
	switch {
	case failures > 0:
		return &exitError{exitErrors, fmt.Errorf("check: %d error(s), %d warning(s)", failures, warnings)}
	case warnings > 0:
		return &exitError{exitWarnings, fmt.Errorf("check: %d warning(s)", warnings)}
	}
	return nil
}

func writeReports(w io.Writer, reports []preflight.Report, format string) error {
	if format == "json" {
		return writeJSON(w, map[string]any{"pools": reports})
	}
	text := newTextWidth(w)
	return writeText(w, func(w io.Writer) {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeReport(w, r, text)
		}
	})
}
