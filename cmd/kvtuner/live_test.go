package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
)

// What "demo serve" serves is found and well, as the README has a newcomer do it,
// and its plugin goes by the document.
func TestServedFleetIsWell(t *testing.T) {
	checkLeaks(t)
	scenario, err := fleet.ByName("8k-c32-slow-storage")
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(t.TempDir(), "parameters.json")
	now := time.Now()
	l, err := newLive(liveOptions{
		scenario: scenario, pool: "demo", initial: store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 3},
		document: document, scrape: serveScrape, start: now.Add(-servePast),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.server.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := l.pass(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	config, _ := runs(t, 0, "check", "--detect", "--prometheus", l.url)
	for _, says := range []string{"name: 'demo'", "initial: 512+3", "scrapeInterval: 5s", "endpoints: 4"} {
		if !strings.Contains(config, says) {
			t.Errorf("does not say %q:\n%s", says, config)
		}
	}
	config += "history: {path: '" + filepath.Join(t.TempDir(), "history.db") + "'}\n"
	if out, _ := runs(t, 0, "check", "--config", writeFile(t, "kvtuner.yaml", config)); !strings.Contains(out, "ok    plugin-source   static, 512+3") {
		t.Errorf("check says:\n%s", out)
	}

	ctx, stop := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan error)
	go func() { ended <- l.run(ctx, ticks) }()
	writer, err := store.OpenFile(store.FileOptions{Path: document, Pool: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	next := &store.Document{APIVersion: store.APIVersion, Pool: "demo", Revision: 1, UpdatedAt: now, Baseline: store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 2}}
	if err := writer.Swap(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for at, before := now, l.requests(); l.inForce().Revision != 1 || l.requests() == before; {
		at = at.Add(time.Second)
		select {
		case ticks <- at:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	if got := l.inForce().Baseline; got != next.Baseline {
		t.Errorf("%s is in force", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
