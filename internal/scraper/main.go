// Command scraper is a Prometheus for end-to-end tests: it scrapes metrics over
// HTTP into the embedded one and serves the query API, until it is interrupted.
//
//	scraper -listen 127.0.0.1:9090 -interval 1s vllm-0=http://127.0.0.1:8000/metrics ...
//
// A target's name is its pod label. It must not know what the series mean.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/internal/prom"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9090", "address of the query API")
	interval := flag.Duration("interval", time.Second, "time between scrapes")
	namespace := flag.String("namespace", "llm", "namespace label of all targets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *namespace, *interval, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "scraper:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, namespace string, interval time.Duration, args []string) error {
	targets, err := parse(namespace, args)
	if err != nil {
		return err
	}
	server, err := prom.Open(prom.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := server.Listen(listen); err != nil {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, t := range targets {
				// A failed scrape is recorded as such.
				_ = server.Scrape(now, t.labels, t)
			}
		}
	}
}

// target is one URL; as a Gatherer it fetches it.
type target struct {
	labels map[string]string
	url    string
}

var _ prometheus.Gatherer = target{}

func parse(namespace string, args []string) ([]target, error) {
	targets := make([]target, len(args))
	for i, arg := range args {
		pod, url, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("target %q: want pod=URL", arg)
		}
		targets[i] = target{map[string]string{"namespace": namespace, "pod": pod}, url}
	}
	return targets, nil
}

var client = &http.Client{Timeout: 500 * time.Millisecond}

// Gather scrapes the target.
func (t target) Gather() ([]*dto.MetricFamily, error) {
	response, err := client.Get(t.url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", t.url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	byName, err := parser.TextToMetricFamilies(response.Body)
	families := make([]*dto.MetricFamily, 0, len(byName))
	for _, family := range byName {
		families = append(families, family)
	}
	return families, err
}
