//go:build e2e

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// observedFleet is a live fleet of a test.
type observedFleet struct {
	*live
	t *testing.T
}

func serve(t *testing.T, document string) *observedFleet {
	t.Helper()
	scenario, err := fleet.ByName("4k-c32")
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLive(liveOptions{
		scenario: scenario, pool: "e2e", initial: store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 4},
		document: document, listen: "127.0.0.1:0", scrape: time.Second, start: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := l.server.Close(); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := l.run(ctx, tickAtOnce(ctx, time.Second)); err != nil {
			t.Error(err)
		}
	})
	return &observedFleet{l, t}
}

// await polls a condition, as an operator's dashboard would.
func (l *observedFleet) await(what string, met func() bool) {
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

func (l *observedFleet) awaitRevision(want int64) {
	l.t.Helper()
	l.await(fmt.Sprintf("revision %d in force", want), func() bool { return l.inForce().Revision >= want })
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
	if got := l.inForce(); got.Baseline.String() != "1024+8" || got.Source != plugin.SourceStore {
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
	if got := l.inForce(); got.Baseline.String() != "4096+2" {
		t.Errorf("after the restart %s is in force", got.Baseline)
	}
	l.await("the fleet to go on serving", func() bool { return l.requests() > before })
	if err := daemon.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	l.checkHistory(history)
}

// checkHistory reads what the daemon recorded with the operator's command.
func (l *observedFleet) checkHistory(path string) {
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
