package store_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

func TestInForce(t *testing.T) {
	d := exampleDocument()
	d.Trial.Assignment = store.Assignment{Mode: store.AssignAll}
	none := d.Clone()
	none.Trial.Assignment.Mode = store.AssignNone
	still := d.Clone()
	still.Trial = nil
	for _, test := range []struct {
		name     string
		document *store.Document
		after    time.Duration
		want     store.Arm
	}{
		{"no trial", still, 0, store.ArmBaseline},
		{"all, at start", d, 0, store.ArmCandidate},
		{"all, by a clock that is behind", d, -time.Minute, store.ArmCandidate},
		{"all, just before the end", d, 10*time.Minute - 1, store.ArmCandidate},
		{"all, at the end", d, 10 * time.Minute, store.ArmBaseline},
		{"all, long after", d, 1000 * time.Hour, store.ArmBaseline},
		{"none", none, 0, store.ArmBaseline},
	} {
		t.Run(test.name, func(t *testing.T) {
			params, arm := test.document.InForce("10.0.0.1:8000", exampleTime.Add(test.after))
			want := test.document.Baseline
			if test.want == store.ArmCandidate {
				want = test.document.Trial.Candidate
			}
			if arm != test.want || params != want {
				t.Errorf("got %v of the %s, want %v of the %s", params, arm, want, test.want)
			}
		})
	}
}

// TestCoversIsStable pins the hash: tuner and plugins of different releases must
// agree on it. The values were computed by an independent implementation.
func TestCoversIsStable(t *testing.T) {
	for _, test := range []struct {
		seed     uint64
		endpoint string
		fraction float64
	}{
		{0, "", 0.936769448390},
		{0, "10.0.0.1:8000", 0.333406473986},
		{0, "10.0.0.2:8000", 0.374169575792},
		{0, "vllm-0", 0.835388807362},
		{7, "", 0.876902417990},
		{7, "10.0.0.1:8000", 0.858218989972},
		{7, "10.0.0.2:8000", 0.391224154026},
		{7, "vllm-0", 0.983000545630},
		{math.MaxUint64, "", 0.459999219832},
		{math.MaxUint64, "10.0.0.1:8000", 0.233978704056},
		{math.MaxUint64, "10.0.0.2:8000", 0.118516636601},
		{math.MaxUint64, "vllm-0", 0.327946277666},
	} {
		for share, want := range map[float64]bool{test.fraction - 1e-9: false, test.fraction + 1e-9: true} {
			trial := store.Trial{Assignment: store.Assignment{Mode: store.AssignSubset, Share: share, Seed: test.seed}}
			if got := trial.Covers(test.endpoint); got != want {
				t.Errorf("seed %d covers %q at share %v: got %t, want %t", test.seed, test.endpoint, share, got, want)
			}
		}
	}
}

func TestSwappedIsTheComplement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trial := store.Trial{Assignment: drawAssignment(t)}
		trial.Assignment.Mode = store.AssignSubset
		endpoint := rapid.String().Draw(t, "endpoint")
		before := trial.Covers(endpoint)
		trial.Assignment.Swapped = !trial.Assignment.Swapped
		if trial.Covers(endpoint) == before {
			t.Fatalf("%+v covers %q: %t both ways", trial.Assignment, endpoint, before)
		}
	})
}

// TestShareIsHonoured allows five standard deviations of a fair draw.
func TestShareIsHonoured(t *testing.T) {
	names := endpoints(10000)
	for _, share := range []float64{0.05, 0.25, 0.5, 0.9} {
		for seed := range uint64(20) {
			trial := store.Trial{Assignment: store.Assignment{Mode: store.AssignSubset, Share: share, Seed: seed}}
			n := float64(len(names))
			allowed := 5 * math.Sqrt(n*share*(1-share))
			if got := float64(covered(trial, names)); math.Abs(got-n*share) > allowed {
				t.Errorf("share %v, seed %d: covers %v of %v endpoints, want %v +- %.0f", share, seed, got, n, n*share, allowed)
			}
		}
	}
}

// TestSeedsAreIndependent: of two seeds, a quarter of the endpoints is in both
// halves.
func TestSeedsAreIndependent(t *testing.T) {
	names := endpoints(10000)
	for _, other := range []uint64{1, 2, 1 << 32, 1 << 63, math.MaxUint64} {
		both := 0
		for _, name := range names {
			if half(0).Covers(name) && half(other).Covers(name) {
				both++
			}
		}
		if both < 2250 || both > 2750 {
			t.Errorf("seeds 0 and %d: %d of 10000 endpoints in both halves, want about 2500", other, both)
		}
	}
}

func half(seed uint64) *store.Trial {
	return &store.Trial{Assignment: store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: seed}}
}

func covered(trial store.Trial, names []string) int {
	n := 0
	for _, name := range names {
		if trial.Covers(name) {
			n++
		}
	}
	return n
}

func BenchmarkInForce(b *testing.B) {
	d := exampleDocument()
	b.ReportAllocs()
	for b.Loop() {
		d.InForce("10.0.0.1:8000", exampleTime)
	}
}
