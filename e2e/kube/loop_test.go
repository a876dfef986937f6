package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
)

const scrape = 15 * time.Second

// loop is the whole of kvtuner around a simulated fleet, in virtual time, with its
// document in a real API server.
type loop struct {
	t       *testing.T
	ns      string
	pool    string
	fleet   *fleet.Fleet
	policy  *plugin.Policy
	replica *prometheus.Registry
	prom    *prom.Server
	query   tuner.Prometheus

	generation int
	store      *configmap.Store
	tuner      *tuner.Tuner
	decisions  []store.Decision
}

func newLoop(t *testing.T, pool string) *loop {
	t.Helper()
	l := &loop{t: t, ns: namespace(t), pool: pool, replica: prometheus.NewRegistry()}
	config, err := plugin.ParseConfig([]byte(`{"loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8,"tuning":{"configMap":{"name":"x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	now := func() time.Time {
		if l.fleet == nil {
			return start
		}
		return l.fleet.Now()
	}
	if l.policy, err = plugin.New(plugin.Options{Config: config, Pool: pool, Now: now, Registerer: l.replica}); err != nil {
		t.Fatal(err)
	}
	scenario, err := fleet.ByName("8k-c4")
	if err != nil {
		t.Fatal(err)
	}
	if l.fleet, err = fleet.New(fleet.Options{Scenario: scenario, Seed: 1, Policy: l.policy, Start: start}); err != nil {
		t.Fatal(err)
	}
	if l.prom, err = prom.Open(prom.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.prom.Close() })
	client, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: l.prom.RoundTripper()})
	if err != nil {
		t.Fatal(err)
	}
	l.query = promv1.NewAPI(client)
	l.replace()
	return l
}

// replace the tuner by one on another node: nothing of the former is left but what
// the ConfigMap holds.
func (l *loop) replace() {
	l.t.Helper()
	l.generation++
	l.store = open(l.t, l.ns, l.pool, fmt.Sprintf("tuner-%d", l.generation))
	s := tuner.DefaultSettings()
	s.Name, s.Mode, s.ScrapeInterval, s.Selector = l.pool, tuner.Enforce, scrape, `namespace="sim"`
	s.Search.Explore, s.Search.MaxExplore, s.Guard.MaxExposure = time.Minute, time.Hour, 1
	s.Guard.Cooldown, s.Guard.MaxCooldown = time.Minute, time.Minute
	t, err := tuner.New(tuner.Options{
		Settings: s, Prometheus: l.query, QueryTimeout: time.Minute, Documents: l.store, Journal: l,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.tuner = t
}

// Append implements tuner.Journal.
func (l *loop) Append(d store.Decision) error {
	l.decisions = append(l.decisions, d)
	return nil
}

// step lets 15 seconds pass for all: fleet, Prometheus, tuner, plugin.
func (l *loop) step() error {
	l.t.Helper()
	l.fleet.Advance(scrape)
	now := l.fleet.Now()
	for _, e := range l.fleet.Endpoints() {
		if err := l.prom.Scrape(now, map[string]string{"namespace": "sim", "pod": e.Name}, e.Gatherer); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := l.prom.Scrape(now, map[string]string{"namespace": "sim", "pod": "epp-0"}, l.replica); err != nil {
		l.t.Fatal(err)
	}
	err := l.tuner.Step(context.Background(), now)
	if d := l.document(); d != nil {
		_ = l.policy.Apply(d)
	}
	return err
}

// document is what the API server has; nil if there is none or it is away.
func (l *loop) document() *store.Document {
	reader, err := configmap.OpenReader(configmap.Options{Client: admin.CoreV1(), Namespace: l.ns, Name: "kvtuner-" + l.pool, Pool: l.pool})
	if err != nil {
		l.t.Fatal(err)
	}
	d, err := reader.Load(l.t.Context())
	if err != nil {
		return nil
	}
	return d
}

// toTrial goes on until a candidate runs.
func (l *loop) toTrial() *store.Document {
	l.t.Helper()
	for range 2000 {
		if err := l.step(); err != nil {
			l.t.Fatal(err)
		}
		if d := l.document(); d.Trial != nil {
			return d
		}
	}
	l.t.Fatal("no trial in 2000 steps")
	return nil
}

// TestLeaderKilledMidTrial: 50 times the tuner is gone without a word while a
// candidate runs. Its successor, somewhere else, ends the trial at once, goes on
// from the same incumbent and the same knowledge, and the former can write nothing
// when it wakes up.
func TestLeaderKilledMidTrial(t *testing.T) {
	const kills = 50
	l := newLoop(t, "killed")
	for n := range kills {
		l.toTrial()
		for range n % 8 { // somewhere in the trial
			if err := l.step(); err != nil {
				t.Fatal(err)
			}
		}
		before := l.document()
		former, formerStore := l.tuner, l.store
		l.replace()
		known := sequence(t, l.store)
		if err := l.step(); err != nil {
			t.Fatalf("kill %d: the successor: %v", n, err)
		}
		after := l.document()
		if after.Trial != nil {
			t.Fatalf("kill %d: a candidate is left: %+v", n, after.Trial)
		}
		if after.Baseline != before.Baseline {
			t.Fatalf("kill %d: the incumbent was %v and is %v", n, before.Baseline, after.Baseline)
		}
		if got := sequence(t, l.store); got < known {
			t.Fatalf("kill %d: the checkpoint went back from decision %d to %d", n, known, got)
		}
		if err := former.Step(t.Context(), l.fleet.Now()); !errors.Is(err, configmap.ErrTakenOver) {
			t.Fatalf("kill %d: the former tuner: %v, want ErrTakenOver", n, err)
		}
		next := after.Clone()
		next.Revision++
		if err := formerStore.Swap(t.Context(), next); !errors.Is(err, configmap.ErrTakenOver) {
			t.Fatalf("kill %d: a write of the former tuner: %v, want ErrTakenOver", n, err)
		}
	}
	kinds := map[store.Kind]int{}
	for _, d := range l.decisions {
		kinds[d.Kind]++
	}
	t.Logf("%d kills mid-trial over %v of virtual time; decisions: %v", kills, l.fleet.Now().Sub(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), kinds)
}

// sequence of the last decision that the checkpoint knows.
func sequence(t *testing.T, s *configmap.Store) uint64 {
	t.Helper()
	raw, err := s.LoadCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Sequence uint64 `json:"sequence"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		t.Fatal(err)
	}
	return k.Sequence
}

// TestAPIServerRestartsMidTrial: while it is away nothing is decided, the candidate
// runs no longer than its lease, and the same tuner goes on when it is back.
func TestAPIServerRestartsMidTrial(t *testing.T) {
	l := newLoop(t, "restart")
	before := l.toTrial()
	plane.stopAPIServer()
	for l.fleet.Now().Before(before.Trial.ExpiresAt) {
		if err := l.step(); err == nil {
			t.Error("a step without the API server succeeded")
		}
	}
	if in := l.policy.InForce(); in.Trial != nil || in.Baseline != before.Baseline {
		t.Errorf("in force after the lease: %+v", in)
	}
	if err := plane.startAPIServer(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.step(); err != nil {
			t.Fatal(err)
		}
	}
	after := l.document()
	if after.Trial != nil || after.Baseline != before.Baseline || after.Revision != before.Revision+1 {
		t.Errorf("the document after the restart: %+v, before it: %+v", after, before)
	}
	l.toTrial()
}
