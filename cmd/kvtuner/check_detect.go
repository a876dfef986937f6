package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

// runDetect prints what Prometheus holds. path is of the configuration that says how
// to get in, if one does.
func runDetect(ctx context.Context, w io.Writer, c tuner.PrometheusConfig, client *connect.Client, path, format string) error {
	d, err := preflight.Detect(ctx, preflight.Options{Prometheus: client, QueryTimeout: c.Timeout, Now: time.Now})
	if err != nil {
		return fmt.Errorf("detecting the set-up: %w", err)
	}
	if format == "json" {
		return writeJSON(w, d)
	}
	return writeText(w, func(w io.Writer) { writeDetection(w, d, c.URL, path) })
}

// writeDetection is a configuration with what was found.
func writeDetection(w io.Writer, d preflight.Detection, address, path string) {
	fmt.Fprintf(w, "# What Prometheus held at %s. Then: kvtuner check --config FILE\n", stamp(d.At))
	if len(d.Also) > 0 {
		fmt.Fprintf(w, "# Series of these presets are there, too; each request must be counted once: %s\n", strings.Join(d.Also, ", "))
	}
	if path == "" {
		fmt.Fprintf(w, "prometheus:\n  url: %s\n", yamlText(withoutPassword(address)))
	} else {
		fmt.Fprintf(w, "# It goes behind the section prometheus of %s, and replaces defaults and pools.\n", oneLine(path))
	}
	fmt.Fprintf(w, "defaults:\n  mode: observe\n  metrics: {preset: %s}\n  endpointLabel: %s\n", d.Preset, d.EndpointLabel)
	if d.Scrape > 0 {
		fmt.Fprintf(w, "  scrapeInterval: %s\n", d.Scrape)
	}
	fmt.Fprintln(w, "pools:")
	for _, p := range d.Pools {
		if !p.Plugin {
			fmt.Fprintf(w, "  # No plugin exports series for this pool: let its setting for the pool be this name.\n")
		}
		fmt.Fprintf(w, "  - name: %s\n    selector: %s\n    endpoints: %d\n", yamlText(p.Name), yamlText(p.Selector), p.Endpoints)
		writeInitial(w, p)
		fmt.Fprintf(w, "    store: {file: %s} # the file that the plugin's tuning.file names\n", yamlText("/var/lib/kvtuner/"+p.Name+".json"))
	}
}

// writeInitial proposes what the plugin has in force, so that the first document
// changes nothing.
func writeInitial(w io.Writer, p preflight.Detected) {
	switch {
	case p.Initial == nil && p.Plugin:
		fmt.Fprintf(w, "    # The plugin's replicas show no thresholds, or not the same ones: set initial to those of its configuration.\n")
	case p.Initial != nil && p.Initial.LoadPolicy == store.Adaptive:
		fmt.Fprintf(w, "    search: {adaptive: try}\n")
		fallthrough
	case p.Initial != nil:
		fmt.Fprintf(w, "    initial: %s # what the plugin has in force\n", p.Initial)
	}
}

// withoutPassword leaves out user and password.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// yamlText quotes as YAML does with single quotes, where nothing is escaped but
// the quote.
func yamlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
