package fleet

import (
	"testing"
	"time"
)

// Stores take their time from later steps, and no more than it.
func TestStoresDragOnSteps(t *testing.T) {
	run := func(perBlock float64) *Fleet {
		s, err := ByName("8k-c16")
		if err != nil {
			t.Fatal(err)
		}
		s.Profile.StorePerBlock = perBlock
		s.Profile.StoreDrag = 0.5
		f, err := newMeasured(t.Context(), s, recompute, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.Advance(100 * time.Second)
		return f
	}
	free, dear := run(0).Stats(), run(0.002).Stats()
	if dear.E2EMean < 1.05*free.E2EMean || dear.ITLMean > 1.5*free.ITLMean {
		t.Errorf("end to end %.2f s and %.4f s a token without cost; %.2f s and %.4f s with", free.E2EMean, free.ITLMean, dear.E2EMean, dear.ITLMean)
	}
	f := run(0.002)
	for i := range f.replicas {
		if left := f.replicas[i].storing; left < 0 || left > 5 {
			t.Errorf("%s: %.2f s of stores left", f.names[i], left)
		}
	}
}

// What the router does not know of, a threshold does not restore; always
// loading finds it by luck.
func TestUnreportedStoresAreFoundByLuckOnly(t *testing.T) {
	share := func(reported float64, setting Setting) float64 {
		s, err := ByName("4k-c16")
		if err != nil {
			t.Fatal(err)
		}
		s.Profile.CPUReported = reported
		f, err := newMeasured(t.Context(), s, setting, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.Advance(60 * time.Second)
		return f.Stats().ExternalPromptShare
	}
	if got := share(0, threshold); got != 0 {
		t.Errorf("a threshold restored %.3f of the prompts without evidence", got)
	}
	none, half, all := share(0, loading), share(0.5, loading), share(1, loading)
	if none <= 0 || half < 1.2*none || all < 1.2*half {
		t.Errorf("always loading restored %.3f, %.3f and %.3f; want growth with what is reported", none, half, all)
	}
}
