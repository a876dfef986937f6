package results

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// Design is what ways of trying a candidate against 1024+8 say of its effect on
// the mean end-to-end time, and what is true: each alone on the whole fleet.
type Design struct {
	Scenario  string          `json:"scenario"`
	Candidate store.Params    `json:"candidate"`
	True      bench.Estimate  `json:"true"`
	Trials    []DesignOutcome `json:"trials"`
}

// DesignOutcome is one way's.
type DesignOutcome struct {
	Name   string         `json:"name"`
	Effect bench.Estimate `json:"effect"`
}

// Sees is the part of the true effect that a design sees; negative is the wrong
// sign.
func (d Design) Sees(o DesignOutcome) float64 { return float64(o.Effect.Mean / d.True.Mean) }

// Designs tried: half of the endpoints at a time, swapped after half of the time;
// or the whole fleet in alternating blocks, the first part of each not judged.
var designs = []design{
	{"half of the endpoints, swapped", true, designTime / 2, 5 * time.Minute},
	{"blocks of 30 s", false, 30 * time.Second, 0},
	{"blocks of 60 s", false, time.Minute, 0},
	{"blocks of 150 s, 60 s washout", false, 150 * time.Second, time.Minute},
}

type design struct {
	name           string
	split          bool
	block, washout time.Duration
}

// designTime is how long each trial lasts.
const designTime = time.Hour

var designCases = []struct{ scenario, candidate string }{
	{"1k-c64", "inf+8"},
	{"8k-c64", "inf+8"},
	{"8k-c64", "1+0"},
	{"mixed-c64", "8192+8"},
	{"mixed-c64-slow-storage", "inf+8"},
	{"8k-c32-slow-storage", "inf+8"},
	{"mixed-c64-slow-storage", "1024+2"},
}

var incumbent = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}

func (s *Study) runDesigns(ctx context.Context) error {
	for _, c := range designCases {
		s.say("designs: %s on %s", c.candidate, c.scenario)
		scenario, err := fleet.ByName(c.scenario)
		if err != nil {
			return err
		}
		candidate, err := store.ParseParams(c.candidate)
		if err != nil {
			return err
		}
		effects := make([][]float64, len(designs)+1)
		for i := range effects {
			effects[i] = make([]float64, s.Seeds)
		}
		err = s.each(ctx, s.Seeds, func(ctx context.Context, n int) error {
			seed := s.Options.FirstSeed + uint64(n)
			if effects[0][n], err = trueEffect(ctx, scenario, candidate, seed); err != nil {
				return err
			}
			for i, d := range designs {
				if effects[i+1][n], err = tryOut(ctx, scenario, candidate, seed, d, designTime); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		design := Design{Scenario: c.scenario, Candidate: candidate, True: bench.EstimateOf(effects[0])}
		for i, d := range designs {
			design.Trials = append(design.Trials, DesignOutcome{Name: d.name, Effect: bench.EstimateOf(effects[i+1])})
		}
		s.Designs = append(s.Designs, design)
	}
	return nil
}

// trueEffect of the candidate, each pair alone on the whole fleet.
func trueEffect(ctx context.Context, scenario fleet.Scenario, candidate store.Params, seed uint64) (float64, error) {
	var e2e [2]float64
	for i, p := range []store.Params{incumbent, candidate} {
		o, err := lab.Run{Phases: []lab.Phase{{Scenario: scenario, Duration: designTime}}, Policy: lab.Static(p), Seed: seed, Scrape: scrape}.Do(ctx)
		if err != nil {
			return 0, err
		}
		e2e[i] = o.Stats.E2EMean
	}
	return e2e[1]/e2e[0] - 1, nil
}

// trial of a candidate on a fleet, as a design tries it.
type trial struct {
	fleet    *fleet.Fleet
	policy   *plugin.Policy
	revision int64
}

// tryOut returns the effect that a design sees.
func tryOut(ctx context.Context, scenario fleet.Scenario, candidate store.Params, seed uint64, d design, lasts time.Duration) (float64, error) {
	t, err := newTrial(scenario, seed)
	if err != nil {
		return 0, err
	}
	arms := map[store.Arm]*arm{store.ArmBaseline: {}, store.ArmCandidate: {}}
	for n := 0; n < int(lasts/d.block); n++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		document := t.document(candidate, assignment(d.split, n, t.endpoints()), d.block)
		if err := t.policy.Apply(document); err != nil {
			return 0, err
		}
		t.fleet.Advance(d.washout)
		if err := t.collect(document, arms, -1); err != nil {
			return 0, err
		}
		t.fleet.Advance(d.block - d.washout)
		if err := t.collect(document, arms, 1); err != nil {
			return 0, err
		}
	}
	return arms[store.ArmCandidate].mean()/arms[store.ArmBaseline].mean() - 1, nil
}

func newTrial(scenario fleet.Scenario, seed uint64) (*trial, error) {
	t := &trial{}
	config, err := plugin.ParseConfig([]byte(`{"loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8,"tuning":{"file":"parameters.json"}}`))
	if err != nil {
		return nil, err
	}
	t.policy, err = plugin.New(plugin.Options{
		Config: config, Pool: "results", Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() time.Time {
			if t.fleet == nil {
				return time.Unix(0, 0)
			}
			return t.fleet.Now()
		},
	})
	if err != nil {
		return nil, err
	}
	t.fleet, err = fleet.New(fleet.Options{Scenario: scenario, Seed: seed, Policy: t.policy, Start: time.Unix(0, 0)})
	return t, err
}

func (t *trial) endpoints() []string {
	var names []string
	for _, e := range t.fleet.Endpoints() {
		names = append(names, e.Name)
	}
	return names
}

func (t *trial) document(candidate store.Params, a store.Assignment, block time.Duration) *store.Document {
	t.revision++
	now := t.fleet.Now()
	return &store.Document{
		APIVersion: store.APIVersion, Pool: "results", Revision: t.revision, UpdatedAt: now, Baseline: incumbent,
		Trial: &store.Trial{ID: "t", Candidate: candidate, Assignment: a, StartedAt: now, ExpiresAt: now.Add(block + time.Minute)},
	}
}

// assignment of block n: the candidate's blocks are the odd ones; of a split, the
// halves swap.
func assignment(split bool, n int, endpoints []string) store.Assignment {
	if !split && n%2 == 0 {
		return store.Assignment{Mode: store.AssignNone}
	}
	if !split {
		return store.Assignment{Mode: store.AssignAll}
	}
	a := store.Assignment{Mode: store.AssignSubset, Share: 0.5, Swapped: n%2 == 1}
	for ; covered(a, endpoints) != len(endpoints)/2; a.Seed++ { // one that halves them
	}
	return a
}

func covered(a store.Assignment, endpoints []string) int {
	n := 0
	for _, e := range endpoints {
		if (&store.Trial{Assignment: a}).Covers(e) {
			n++
		}
	}
	return n
}

// arm sums what its endpoints' requests took.
type arm struct{ seconds, requests float64 }

func (a arm) mean() float64 {
	if a.requests <= 0 {
		return math.NaN()
	}
	return a.seconds / a.requests
}

// collect adds the engines' totals to the arms, or takes them away.
func (t *trial) collect(d *store.Document, arms map[store.Arm]*arm, sign float64) error {
	for _, e := range t.fleet.Endpoints() {
		_, which := d.InForce(e.Name, t.fleet.Now())
		sum, count, err := endToEnd(e.Gatherer)
		if err != nil {
			return fmt.Errorf("engine %s: %w", e.Name, err)
		}
		arms[which].seconds += sign * sum
		arms[which].requests += sign * count
	}
	return nil
}

func endToEnd(g prometheus.Gatherer) (sum, count float64, err error) {
	families, err := g.Gather()
	if err != nil {
		return 0, 0, err
	}
	for _, f := range families {
		if f.GetName() != "vllm:e2e_request_latency_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetHistogram().GetSampleSum()
			count += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, count, nil
}
