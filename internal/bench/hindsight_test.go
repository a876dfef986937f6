package bench

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

func e2e(seconds ...float64) []stretch {
	var all []stretch
	for _, s := range seconds {
		all = append(all, stretch{stats: fleet.Stats{E2EMean: s, Requests: 1, Duration: time.Second}})
	}
	return all
}

func TestBest(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name       string
		candidates [][]stretch
		want       int
	}{
		{"lowest mean, not the luckiest seed", [][]stretch{e2e(1, 9), e2e(4, 4)}, 1},
		{"first of equals", [][]stretch{e2e(5, 5), e2e(4, 4), e2e(3, 5)}, 1},
		{"nothing completed in one seed", [][]stretch{e2e(1, nan), e2e(8, 8)}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := best(tt.candidates); err != nil || got != tt.want {
				t.Errorf("best is %d, %v; want %d", got, err, tt.want)
			}
		})
	}
	if _, err := best([][]stretch{e2e(nan), e2e(nan)}); !errors.Is(err, errNothing) {
		t.Errorf("best of nothing: %v", err)
	}
}

func policies(t *testing.T, names ...string) []lab.Policy {
	t.Helper()
	var all []lab.Policy
	for _, n := range names {
		p, err := lab.ParsePolicy(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// twoPhases is a run whose phases have one request each.
func twoPhases(a, b float64) outcome {
	phases := e2e(a, b)
	return outcome{phases: phases, whole: join(phases)}
}

func TestHindsight(t *testing.T) {
	s := sweep{
		pairs: policies(t, "static:1+0", "static:1024+8", "static:inf+0"),
		runs: [][]outcome{ // by pair, then by seed
			{twoPhases(2, 9), twoPhases(2, 9)},
			{twoPhases(4, 4), twoPhases(4, 4)},
			{twoPhases(8, 2), twoPhases(8, 2)},
		},
	}
	fixed, err := s.bestStatic()
	if err != nil {
		t.Fatal(err)
	}
	oracle, err := s.oracle()
	if err != nil {
		t.Fatal(err)
	}
	type found struct {
		Whole  float64
		Pair   string
		Phases []string
	}
	look := func(o outcome) found {
		f := found{Whole: o.whole.stats.E2EMean, Pair: o.whole.pair}
		for _, p := range o.phases {
			f.Phases = append(f.Phases, p.pair)
		}
		return f
	}
	if diff := cmp.Diff(found{4, "1024+8", []string{"1024+8", "1024+8"}}, look(fixed[1])); diff != "" {
		t.Errorf("best static (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(found{2, "", []string{"1+0", "inf+0"}}, look(oracle[1])); diff != "" {
		t.Errorf("oracle (-want +got):\n%s", diff)
	}
	if s.runs[0][0].phases[0].pair != "" {
		t.Error("naming a pair changed the run it was found in")
	}
}

func TestGridLeavesOutWhatNoPrefixReaches(t *testing.T) {
	tests := []struct {
		scenario, longest string
		size              int
	}{
		{"1k-c64", "static:1024+0", 4*6 + 1},
		{"4k-c32", "static:4096+0", 6*6 + 1},
		{"mixed-c64", "static:8192+0", 7*6 + 1},
	}
	for _, tt := range tests {
		scenario, err := fleet.ByName(tt.scenario)
		if err != nil {
			t.Fatal(err)
		}
		all := grid([]lab.Phase{{Scenario: scenario}})
		seen := map[lab.Policy]bool{}
		for _, p := range all {
			seen[p] = true
		}
		if len(all) != tt.size || len(seen) != tt.size {
			t.Errorf("%s: %d pairs, %d different; want %d", tt.scenario, len(all), len(seen), tt.size)
		}
		if last := all[len(all)-2].String(); last != tt.longest {
			t.Errorf("%s: longest is %s, want %s", tt.scenario, last, tt.longest)
		}
		if never := all[len(all)-1].String(); never != "static:inf+0" {
			t.Errorf("%s: last is %s, want static:inf+0", tt.scenario, never)
		}
	}
}

func TestCombine(t *testing.T) {
	a := fleet.Stats{Duration: 10 * time.Second, Requests: 10, RequestsPerSecond: 1, OutputTokensPerSecond: 128,
		TTFTMean: 1, TTFTP99: 3, ITLMean: 0.02, E2EMean: 4, WaitingMean: 2}
	b := fleet.Stats{Duration: 30 * time.Second, Requests: 90, RequestsPerSecond: 3, OutputTokensPerSecond: 384,
		TTFTMean: 2, TTFTP99: 5, ITLMean: 0.04, E2EMean: 6, WaitingMean: 6}
	nan := math.NaN()
	idle := fleet.Stats{Duration: 10 * time.Second, TTFTMean: nan, ITLMean: nan, E2EMean: nan}
	got := combine([]fleet.Stats{a, b, idle})
	near(t, "requests/s", Number(got.RequestsPerSecond), 100.0/50)
	near(t, "tokens/s", Number(got.OutputTokensPerSecond), (1280.0+11520)/50)
	near(t, "TTFT", Number(got.TTFTMean), 1.9)
	near(t, "ITL", Number(got.ITLMean), 0.038)
	near(t, "end-to-end", Number(got.E2EMean), 5.8)
	near(t, "waiting", Number(got.WaitingMean), (20.0+180)/50)
	if !math.IsNaN(got.TTFTP99) || !math.IsNaN(got.ExternalPromptShare) {
		t.Error("a quantile or share was made up")
	}
}
