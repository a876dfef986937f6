package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// live is a simulated fleet that serves in real time, the plugin that decides for
// it and watches the parameter document, and a Prometheus that scrapes both.
type live struct {
	url    string
	policy *plugin.Policy

	reader   *store.FileReader
	server   *prom.Server
	registry *prometheus.Registry
	scrape   time.Duration

	// mu is held while time passes and while the policy is asked: its clock is the
	// fleet's.
	mu      sync.Mutex
	fleet   *fleet.Fleet
	scraped time.Time
}

// liveOptions say what serves.
type liveOptions struct {
	scenario fleet.Scenario
	// pool is the plugin's name for it, initial its static parameters, document the
	// path of the file it watches.
	pool     string
	initial  store.Params
	document string
	// listen is where Prometheus answers, on loopback; scrape how often it scrapes,
	// in whole seconds.
	listen string
	scrape time.Duration
	start  time.Time
}

// newLive builds it and takes the address. The caller closes its server.
func newLive(o liveOptions) (*live, error) {
	config, err := plugin.ParseConfig(fmt.Appendf(nil,
		`{"loadPolicy":"threshold","minExternalReusableTokens":%d,"maxWaitingRequests":%d,"tuning":{"file":%q}}`,
		o.initial.MinExternalReusableTokens, o.initial.MaxWaitingRequests, o.document))
	if err != nil {
		return nil, err
	}
	l := &live{registry: prometheus.NewRegistry(), scrape: o.scrape}
	now := func() time.Time {
		if l.fleet == nil {
			return o.start
		}
		return l.fleet.Now()
	}
	l.policy, err = plugin.New(plugin.Options{Config: config, Pool: o.pool, Now: now, Logger: slog.New(slog.DiscardHandler), Registerer: l.registry})
	if err != nil {
		return nil, err
	}
	if l.fleet, err = fleet.New(fleet.Options{Scenario: o.scenario, Seed: 1, Policy: l.policy, Start: o.start}); err != nil {
		return nil, err
	}
	if l.reader, err = store.OpenFileReader(store.FileOptions{Path: o.document, Pool: o.pool}); err != nil {
		return nil, err
	}
	if l.server, err = prom.Open(prom.Options{Now: time.Now}); err != nil {
		return nil, err
	}
	if l.url, err = l.server.Listen(o.listen); err != nil {
		return nil, errors.Join(err, l.server.Close())
	}
	return l, nil
}

// run watches the document and lets time pass, at the pace of ticks, until ctx ends.
func (l *live) run(ctx context.Context, ticks <-chan time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { l.watch(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticks:
			if err := l.pass(ctx, now); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// watch puts in force what the document says.
func (l *live) watch(ctx context.Context) {
	for update := range l.reader.Watch(ctx) {
		l.mu.Lock()
		switch {
		case errors.Is(update.Err, store.ErrNotFound):
		case update.Err != nil:
			l.policy.Reject(update.Err)
		default:
			_ = l.policy.Apply(update.Document) // refused ones are counted
		}
		l.mu.Unlock()
	}
}

// pass brings the fleet up to now, and scrapes whenever that is due.
func (l *live) pass(ctx context.Context, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.fleet.Now().Before(now) {
		step := min(l.scrape, now.Sub(l.fleet.Now()))
		if err := l.fleet.AdvanceContext(ctx, step); err != nil {
			return err
		}
		if l.fleet.Now().Sub(l.scraped) < l.scrape {
			continue
		}
		if err := l.scrapeAll(l.fleet.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) scrapeAll(now time.Time) error {
	l.scraped = now
	for _, e := range l.fleet.Endpoints() {
		if err := l.server.Scrape(now, map[string]string{"namespace": "llm", "pod": e.Name}, e.Gatherer); err != nil {
			return fmt.Errorf("scraping %s: %w", e.Name, err)
		}
	}
	if err := l.server.Scrape(now, map[string]string{"namespace": "llm", "pod": "epp-0"}, l.registry); err != nil {
		return fmt.Errorf("scraping the plugin: %w", err)
	}
	return nil
}

func (l *live) inForce() plugin.InForce {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.InForce()
}

func (l *live) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fleet.Stats().Requests
}
