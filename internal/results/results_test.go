package results

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/internal/bench"
	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

func TestSchedulesAreWhole(t *testing.T) {
	for name, hours := range map[string]float64{"shifting": 3.75, "held-out": 4, "day": 24} {
		s, err := readSchedule(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, p := range s.Phases {
			sum += p.Duration.Hours()
		}
		if math.Abs(sum-hours) > 1e-9 {
			t.Errorf("schedule %s lasts %g h, want %g", name, sum, hours)
		}
	}
}

func TestWorst(t *testing.T) {
	second := func(e2e float64) []fleet.Second {
		return slices.Repeat([]fleet.Second{{Requests: 2, E2E: 2 * e2e}}, fiveMinutesSeconds)
	}
	reference := means(slices.Concat(second(2), second(4), second(2)))
	own := means(slices.Concat(second(1), second(5), second(2.2), second(90)[:10]))
	if len(own) != 3 {
		t.Fatalf("%d stretches of three whole ones and a rest: %v", len(own), own)
	}
	if got := worst(own, reference); math.Abs(got-(-0.2)) > 1e-12 {
		t.Errorf("worst %v, want the 20%% of the second", got)
	}
	if got := worst(reference, reference); got != 0 {
		t.Errorf("worst of itself %v", got)
	}
}

func TestMinutesToRecover(t *testing.T) {
	of := func(values ...float64) RecoveryOfPolicy {
		r := RecoveryOfPolicy{}
		for _, v := range values {
			r.Efficiency = append(r.Efficiency, bench.Estimate{Mean: bench.Number(v)})
		}
		return r
	}
	for _, tc := range []struct {
		r    RecoveryOfPolicy
		want int
	}{{of(0.9, 0.98, 0.9), 5}, {of(0.97), 0}, {of(0.9, 0.969), -1}} {
		if got := tc.r.Minutes(); got != tc.want {
			t.Errorf("%v: %d minutes, want %d", tc.r.Efficiency, got, tc.want)
		}
	}
}

// At 1K and 64 streams restoring is the better by 6%: the judge of false moves
// must see it in both directions, and a move to the same as false.
func TestImproves(t *testing.T) {
	scenario, err := fleet.ByName("1k-c64")
	if err != nil {
		t.Fatal(err)
	}
	load := store.Params{MinExternalReusableTokens: 1}
	never := store.Params{MinExternalReusableTokens: store.Never}
	s := Study{Options: Options{FirstSeed: 1}, Seeds: 1}
	var costs once[store.Params, float64]
	for _, tc := range []struct {
		from, to store.Params
		want     bool
	}{{never, load, true}, {load, never, false}, {load, load, false}} {
		if got, err := s.improves(context.Background(), scenario, tc.from, tc.to, &costs); err != nil || got != tc.want {
			t.Errorf("%s to %s: %v, %v; want %v", tc.from, tc.to, got, err, tc.want)
		}
	}
}

// At 1K and 64 streams a restore slows nobody, so that every design sees that never
// restoring is worse.
func TestDesignsSeeAPlainEffect(t *testing.T) {
	scenario, err := fleet.ByName("1k-c64")
	if err != nil {
		t.Fatal(err)
	}
	never := store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: 8}
	const lasts = 8 * time.Minute
	for _, d := range []design{{"split", true, lasts / 2, time.Minute}, {"blocks", false, 2 * time.Minute, time.Minute}} {
		got, err := tryOut(context.Background(), scenario, never, 1, d, lasts)
		if err != nil || !(got > 0.02 && got < 0.2) {
			t.Errorf("%s: effect %+.3f, %v", d.name, got, err)
		}
		same, err := tryOut(context.Background(), scenario, incumbent, 1, d, lasts)
		if err != nil || !(math.Abs(same) < 0.03) {
			t.Errorf("%s: a candidate like the incumbent has effect %+.3f, %v", d.name, same, err)
		}
	}
}

func TestOnce(t *testing.T) {
	var o once[string, int]
	n := 0
	for range 3 {
		if v, err := o.get("a", func() (int, error) { n++; return n, nil }); v != 1 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	}
	bad := errors.New("bad")
	if _, err := o.get("b", func() (int, error) { return 0, bad }); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
}

func TestEveryMechanismIsTakenOut(t *testing.T) {
	var out []tuner.Mechanism
	for _, v := range variants() {
		s := tuner.DefaultSettings()
		if v.adjust != nil {
			v.adjust(&s)
		}
		out = append(out, s.Without...)
		s.Name, s.Selector = "p", `a="b"`
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
	if !slices.Equal(out, tuner.Mechanisms()) {
		t.Errorf("taken out %v, want each of %v once", out, tuner.Mechanisms())
	}
}

func TestPageAndPlots(t *testing.T) {
	whole := func(policy string, phase int, efficiency float64) bench.Summary {
		e := bench.Estimate{Mean: bench.Number(efficiency), CI95: 0.01, N: 3}
		s := bench.Summary{Place: bench.Place{Schedule: "shifting", Phase: phase}, Policy: policy, Seeds: 3,
			Metrics: map[string]bench.Estimate{"efficiency": e, "e2e_mean_s": {Mean: bench.Number(3 / efficiency)}},
			Versus:  &bench.Versus{Policy: "static:1024+8", Metrics: map[string]bench.Estimate{"e2e_mean_s": e}}}
		if phase > 0 {
			s.Scenario = "8k-c64"
		}
		return s
	}
	s := Study{Seeds: 3, DaySeeds: 1,
		Schedules: []Schedule{{Name: "shifting", Seeds: 3, Hours: 4, Summary: []bench.Summary{
			whole("static:1024+8", 1, 0.95), whole("tuned", 1, 0.99), whole("static:1024+8", 0, 0.95), whole("tuned", 0, 0.99)}}},
		Settled:    []Settled{{Scenario: "1k-c64", Reference: "static:1024+8", Summary: []bench.Summary{whole("tuned", 2, 1)}}},
		Recoveries: []Recovery{{Scenario: "slow", Policies: []RecoveryOfPolicy{{Policy: "tuned", Efficiency: []bench.Estimate{{Mean: 0.98}}}}}},
		Worst:      []Worst{{Policy: placebo, Mean: -0.1, Least: -0.2}},
		Stationary: []Stationary{{Scenario: "8k-c64", Policy: "tuned", Days: 1, TrialsPerHour: 0.25}},
		Designs:    []Design{{Scenario: "8k-c64", True: bench.Estimate{Mean: -0.1}, Trials: []DesignOutcome{{Name: "blocks", Effect: bench.Estimate{Mean: -0.05, CI95: 0.01}}}}},
		Ablations:  []Ablation{{Name: "without doubt", Effects: []AblationEffect{{Schedule: "shifting", Trials: 2}}}},
	}
	var b strings.Builder
	if err := s.WritePage(&b, "kvtuner bench results"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| tuned | 0.990 ± 0.010 | 3.03", "| static:1024+8 | 0.950 ± 0.010", "| 0 min |", "-10.0%", "-5.0% ± 1.0 (0.5)", "| 0.25 |", "without doubt | shifting",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, b.String())
		}
	}
	if tuned, static := strings.Index(b.String(), "| tuned |"), strings.Index(b.String(), "| static:1024+8 |"); tuned > static {
		t.Error("the better policy does not come first")
	}
	for _, p := range s.Plots() {
		var svg strings.Builder
		if err := p.WriteSVG(&svg); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(svg.String(), "<polyline"); n != 2 {
			t.Errorf("%s: %d lines of 2 policies", p.Name, n)
		}
		for d := xml.NewDecoder(strings.NewReader(svg.String())); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s is no XML: %v", p.Name, err)
			}
		}
	}
}
