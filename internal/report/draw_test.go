package report

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

func atSecond(t time.Duration) float64 { return t.Seconds() }

func same(v float64) float64 { return v }

func TestPolylineBreaksWhereNothingWasMeasured(t *testing.T) {
	nan := math.NaN()
	points := []point{{1 * time.Second, nan}, {2 * time.Second, 5}, {3 * time.Second, 6}, {4 * time.Second, nan}, {5 * time.Second, 7}}
	if got, want := polyline(points, atSecond, same), "M2.0 5.0L3.0 6.0M5.0 7.0"; got != want {
		t.Errorf("path is %q, want %q", got, want)
	}
}

func TestStepsKeepEachValueUntilTheNext(t *testing.T) {
	path := []lab.Point{{At: 0, Params: initial}, {At: 4 * time.Second, Params: strict}}
	if got, want := steps(path, 9*time.Second, waitingOf, atSecond, same), "M0.0 8.0H4.0V2.0H9.0"; got != want {
		t.Errorf("path is %q, want %q", got, want)
	}
}

func TestCandidatesAndIncumbents(t *testing.T) {
	s := made()
	want := []stay{{11 * time.Minute, 13 * time.Minute, strict}, {18 * time.Minute, 19 * time.Minute, never}}
	if diff := cmp.Diff(want, candidates(s.Tuned.Outcome.Path, s.total())); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	lasting := []lab.Point{
		{Params: initial, Arm: store.ArmBaseline},
		{At: 14 * time.Minute, Params: strict, Arm: store.ArmBaseline},
	}
	if diff := cmp.Diff(lasting, Incumbents(s.Tuned.Outcome.Path)); diff != "" {
		t.Errorf("incumbents (-want +got):\n%s", diff)
	}
}

func TestCandidateInForceAtTheEnd(t *testing.T) {
	path := []lab.Point{{Params: initial, Arm: store.ArmBaseline}, {At: time.Minute, Params: strict, Arm: store.ArmCandidate}}
	want := []stay{{time.Minute, time.Hour, strict}}
	if diff := cmp.Diff(want, candidates(path, time.Hour)); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func TestAverageIsOfRequests(t *testing.T) {
	all := []fleet.Second{{Requests: 1, TTFT: 4}, {Requests: 3, TTFT: 0}, {Requests: 2, TTFT: 6}}
	want := []point{{2 * time.Second, 1}, {3 * time.Second, 3}}
	if diff := cmp.Diff(want, average(all, 2*time.Second, meanTTFT)); diff != "" {
		t.Errorf("mean TTFT (-want +got):\n%s", diff)
	}
	rates := []point{{2 * time.Second, 2}, {3 * time.Second, 2}}
	if diff := cmp.Diff(rates, average(all, 2*time.Second, throughput)); diff != "" {
		t.Errorf("throughput (-want +got):\n%s", diff)
	}
	if v := average(make([]fleet.Second, 2), 2*time.Second, meanE2E)[0].V; !math.IsNaN(v) {
		t.Errorf("mean of no requests is %v, want NaN: missing is not zero", v)
	}
}

func TestScales(t *testing.T) {
	labels := func(s scale) (all []string) {
		for _, t := range s.ticks {
			all = append(all, t.Label)
		}
		return all
	}
	wide := []store.Params{initial, {MinExternalReusableTokens: 32768, MaxWaitingRequests: store.NoGate}}
	tests := []struct {
		name string
		got  scale
		want []string
	}{
		{"linear", linear(17.2), []string{"0", "5", "10", "15", "20"}},
		{"linear of nothing", linear(0), []string{"0", "1"}},
		{"decades", logSeconds(0.08, 12), []string{"100 ms", "1 s", "10 s"}},
		{"part of a decade", logSeconds(3, 8), []string{"3 s", "4 s", "6 s", "8 s"}},
		{"no duration", logSeconds(0, 0), []string{"100 ms", "300 ms", "1 s"}},
		{"tokens", tokenScale(wide), []string{"1", "64", "1024", "8192", "inf"}},
		{"waiting", waitingScale(wide), []string{"1", "4", "16", "off"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, labels(tt.got)); diff != "" {
				t.Errorf("ticks (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever thresholds were used, they lie on their panels, in order, and their
// infinities above all others.
func TestThresholdScalesHoldWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var used []store.Params
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			used = append(used, store.Params{
				MinExternalReusableTokens: store.Tokens(rapid.Int64Range(1, 1<<40).Draw(t, "tokens")),
				MaxWaitingRequests:        rapid.IntRange(0, 1<<20).Draw(t, "waiting"),
			})
		}
		for _, axis := range []struct {
			s  scale
			of func(store.Params) float64
		}{{tokenScale(used), tokensOf}, {waitingScale(used), waitingOf}} {
			top := axis.s.at(math.Inf(1))
			for i, p := range used {
				at := axis.s.at(axis.of(p))
				if at < 0 || at > 1 || at > top || axis.of(p) < math.Inf(1) && at == top {
					t.Fatalf("%s is at %v, infinity at %v", p, at, top)
				}
				for _, q := range used[:i] {
					if axis.of(p) < axis.of(q) && at >= axis.s.at(axis.of(q)) {
						t.Fatalf("%s is not below %s", p, q)
					}
				}
			}
		}
	})
}

func TestLatencyScalesHoldTheirRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Float64Range(1e-4, 1e3).Draw(t, "low")
		high := low * rapid.Float64Range(1, 1e5).Draw(t, "factor")
		s := logSeconds(low, high)
		if a, b := s.at(low), s.at(high); a < 0 || b > 1 || a > b {
			t.Fatalf("%v to %v is at %v to %v", low, high, a, b)
		}
		if n := len(s.ticks); n < 2 || n > 12 {
			t.Fatalf("%v to %v has %d ticks", low, high, n)
		}
	})
}

func TestMarksDoNotCoverEachOther(t *testing.T) {
	s := made()
	for i := range s.Tuned.Outcome.Decisions[1:] {
		s.Tuned.Outcome.Decisions[i+1].Time = start.Add(time.Duration(i+1) * 20 * time.Second)
	}
	for _, l := range layouts(s.total()) {
		f := s.figure(l)
		for i, a := range f.Marks {
			for _, b := range f.Marks[:i] {
				if dx, dy := number(t, a.X)-number(t, b.X), number(t, a.Y)-number(t, b.Y); math.Hypot(dx, dy) < 2*markRadius {
					t.Errorf("%s: decisions %d and %d overlap", l.id, b.N, a.N)
				}
			}
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
