package lab

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
)

// On engines that ignore the plugin nothing is tuned: that is said, once, before
// half an hour is over, and no parameters move after it.
func TestDeafEnginesAreNotTuned(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"8k-c32-slow-storage", "mixed-c64-slow-storage"} {
		s, err := fleet.ByName(scenario)
		if err != nil {
			t.Fatal(err)
		}
		o, err := Run{Policy: Tuned(start), Deaf: true, Seed: 1, Phases: []Phase{{s, time.Hour}}}.Do(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var held time.Time
		for _, d := range o.Decisions {
			switch {
			case d.Kind == store.KindHold && strings.Contains(d.Reason, "ignore the knob"):
				if !held.IsZero() {
					t.Errorf("%s: said again at %v", scenario, d.Time.Sub(o.Start))
				}
				held = d.Time
			case !held.IsZero():
				t.Errorf("%s: after the hold at %v, %s: %s", scenario, held.Sub(o.Start), d.Kind, d.Reason)
			case d.Kind == store.KindMove:
				t.Errorf("%s: moved at %v before the effect check spoke: %s", scenario, d.Time.Sub(o.Start), d.Reason)
			}
		}
		if held.IsZero() || held.Sub(o.Start) > 30*time.Minute {
			t.Errorf("%s: held at %v", scenario, held.Sub(o.Start))
		}
	}
}

// Engines that obey are never accused.
func TestObedientEnginesAreNotAccused(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"8k-c4", "8k-c32-slow-storage", "mixed-c64-slow-storage", "4k-bursts"} {
		for _, d := range run(t, Tuned(start), 2, nil, scenario).Decisions {
			if d.Kind == store.KindHold {
				t.Errorf("%s: %s", scenario, d.Reason)
			}
		}
	}
}
