//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// live is a fleet that serves in real time, the plugin that decides for it and
// watches the parameter file, and a Prometheus that scrapes both each second.
type live struct {
	t      *testing.T
	url    string
	policy *plugin.Policy

	mu    sync.Mutex
	fleet *fleet.Fleet
}

func serve(t *testing.T, document string) *live {
	t.Helper()
	config, err := plugin.ParseConfig([]byte(fmt.Sprintf(
		`{"loadPolicy":"threshold","minExternalReusableTokens":2048,"maxWaitingRequests":4,"tuning":{"file":%q}}`, document)))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	policy, err := plugin.New(plugin.Options{Config: config, Pool: "e2e", Now: time.Now, Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := fleet.ByName("4k-c32")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(fleet.Options{Scenario: scenario, Seed: 1, Policy: policy, Start: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := prom.Open(prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	url, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, url: url, policy: policy, fleet: f}
	l.start(document, server, registry)
	return l
}

// start watches the file and lets time pass, until the test ends.
func (l *live) start(document string, server *prom.Server, registry *prometheus.Registry) {
	ctx, cancel := context.WithCancel(context.Background())
	reader, err := store.OpenFileReader(store.FileOptions{Path: document, Pool: "e2e"})
	if err != nil {
		l.t.Fatal(err)
	}
	var running sync.WaitGroup
	l.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for update := range reader.Watch(ctx) {
			switch {
			case errors.Is(update.Err, store.ErrNotFound):
			case update.Err != nil:
				l.policy.Reject(update.Err)
			default:
				_ = l.policy.Apply(update.Document) // refused ones are counted
			}
		}
	})
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				l.pass(now, server, registry)
			}
		}
	})
}

// pass brings the fleet up to now and scrapes.
func (l *live) pass(now time.Time, server *prom.Server, registry *prometheus.Registry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fleet.Advance(now.Sub(l.fleet.Now()))
	for _, e := range l.fleet.Endpoints() {
		if err := server.Scrape(now, map[string]string{"namespace": "llm", "pod": e.Name}, e.Gatherer); err != nil {
			l.t.Errorf("scraping %s: %v", e.Name, err)
		}
	}
	if err := server.Scrape(now, map[string]string{"namespace": "llm", "pod": "epp-0"}, registry); err != nil {
		l.t.Errorf("scraping the plugin: %v", err)
	}
}

func (l *live) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fleet.Stats().Requests
}

// await polls a condition, as an operator's dashboard would.
func (l *live) await(what string, met func() bool) {
	l.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(90 * time.Second)
	for !met() {
		select {
		case <-tick.C:
		case <-limit:
			l.t.Fatalf("waited 90 s for %s", what)
		}
	}
}

func (l *live) awaitRevision(want int64) {
	l.t.Helper()
	l.await(fmt.Sprintf("revision %d in force", want), func() bool { return l.policy.InForce().Revision >= want })
}

// TestE2E runs the daemon as its users do: the loop closes through a real file,
// a real socket and real time; it survives kill -9, respects another writer, and
// the fleet serves on whatever happens to it.
func TestE2E(t *testing.T) {
	dir := t.TempDir()
	document, history := filepath.Join(dir, "params.json"), filepath.Join(dir, "history.db")
	l := serve(t, document)
	config := writeFile(t, "kvtuner.yaml", fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: %q}
history: {path: %q}
log: {level: debug}
pools: [{name: e2e, mode: enforce, scrapeInterval: 1s, endpoints: 4, selector: 'namespace="llm"', store: {file: %q}}]
`, l.url, history, document))

	daemon := launch(t, config)
	daemon.await("no document existed: starting from the initial 1024+8")
	l.awaitRevision(1)
	if got := l.policy.InForce(); got.Baseline.String() != "1024+8" || got.Source != plugin.SourceStore {
		t.Errorf("in force: %+v", got)
	}

	writer, err := store.OpenFile(store.FileOptions{Path: document, Pool: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := writer.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	theirs.Revision++
	theirs.Baseline = store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 2}
	if err := writer.Swap(context.Background(), theirs); err != nil {
		t.Fatal(err)
	}
	l.awaitRevision(2)
	daemon.await("someone else wrote revision 2: 4096+2 is respected")

	if err := daemon.end(syscall.SIGKILL); err == nil {
		t.Error("the daemon survived SIGKILL")
	}
	before := l.requests()
	daemon = launch(t, config)
	daemon.await("took over 4096+2 of revision 2 as the incumbent")
	if got := l.policy.InForce(); got.Baseline.String() != "4096+2" {
		t.Errorf("after the restart %s is in force", got.Baseline)
	}
	l.await("the fleet to go on serving", func() bool { return l.requests() > before })
	if err := daemon.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	l.checkHistory(history)
}

// checkHistory reads what the daemon recorded with the operator's command.
func (l *live) checkHistory(path string) {
	l.t.Helper()
	var out, errs strings.Builder
	if code := execute(context.Background(), []string{"history", "--db", path, "--output", "csv"}, &out, &errs); code != 0 {
		l.t.Fatalf("history: exit code %d: %s", code, errs.String())
	}
	for _, kind := range []store.Kind{store.KindAdopt, store.KindDrift} {
		if !strings.Contains(out.String(), string(kind)) {
			l.t.Errorf("the history lacks %q:\n%s", kind, out.String())
		}
	}
}
