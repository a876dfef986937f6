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

// A storage that takes longer than trial.washout to work off what an arm has asked
// of it does not count against the other.
func TestWashoutOutlastsTheBacklog(t *testing.T) {
	for _, tc := range []struct{ deferral, want time.Duration }{
		{0, time.Minute}, {20 * time.Second, time.Minute}, {50 * time.Second, 100 * time.Second}, {10 * time.Minute, 150 * time.Second},
	} {
		w := newWorld(t, flat)
		w.change = func(s *Sample, _ store.Params) {
			s.Signals.LookupSeconds = s.Plugin.Loads * tc.deferral.Seconds()
		}
		for w.trial == nil {
			w.run(15 * time.Second)
		}
		if got := w.c.trial.washout; got != tc.want {
			t.Errorf("restores wait %v: washout %v, want %v", tc.deferral, got, tc.want)
		}
		for w.c.trial.judged[store.ArmCandidate] == 0 {
			w.run(15 * time.Second)
		}
		if ran := w.now.Sub(w.c.trial.acked); ran <= tc.want {
			t.Errorf("judged %v after the acknowledgement, within the washout of %v", ran, tc.want)
		}
		w.run(3 * time.Hour)
		if w.count(store.KindTrial) == 0 || w.count(store.KindKeep) == 0 {
			t.Errorf("restores wait %v: no trial came to its end", tc.deferral)
		}
	}
}
