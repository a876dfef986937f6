package tuner

import (
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// A workload that halves its cost just when a candidate is first tried looks like
// the greatest of gains; the incumbent's next block shows that it is none.
func TestWorkloadThatChangesWithTheFirstSwitch(t *testing.T) {
	var w *world
	began := time.Duration(-1)
	w = newWorld(t, func(_ store.Params, at time.Duration) float64 {
		if began < 0 && w.trial != nil {
			began = at
		}
		if began >= 0 {
			return 1.5
		}
		return 3
	})
	w.run(30 * time.Minute)
	if began < 0 {
		t.Fatal("nothing was tried")
	}
	if d := w.last(store.KindMove); d != nil {
		t.Errorf("moved: %s", d.Reason)
	}
}
