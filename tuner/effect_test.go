package tuner

import (
	"strings"
	"testing"
	"time"
)

// effectSample is 15 s of a pool: 10 requests each way, of 4096 reusable tokens and
// 256 new ones. obeyed is the share of the recomputed tokens that engines compute,
// external what they restored.
func effectSample(n int, obeyed, external float64) Sample {
	to := noon.Add(time.Duration(n) * 15 * time.Second)
	return Sample{From: to.Add(-15 * time.Second), To: to, State: OK,
		Signals: Signals{Seconds: 15, Requests: 20, External: external, CopySeconds: external / 1e5, Engines: 1},
		Plugin: PluginSample{State: OK, Curve: []CurvePoint{
			{Load: true, Reusable: 4096, Started: 10, ReusableTokens: 40960, Finished: 10, ComputedTokens: 2560},
			{Reusable: 4096, Started: 10, ReusableTokens: 40960, Finished: 10, ComputedTokens: 2560 + obeyed*40960},
		}},
	}
}

func TestEffect(t *testing.T) {
	for _, tc := range []struct {
		name             string
		obeyed, external float64
		says             string
	}{
		{"engines obey", 1, 40960, ""},
		{"the GPU had half of it by then", 0.5, 40960, ""},
		{"engines restore all the same", 0, 81920, "ignore the knob"},
		{"evidence promised what was not there", 0, 20000, ""},
		{"nothing is ever restored", 1, 0, "restore nothing"},
	} {
		var e effect
		held := 0
		for n := range 120 {
			e.watch(effectSample(n, tc.obeyed, tc.external))
			if e.why != "" && held == 0 {
				held = n
			}
		}
		if tc.says == "" && e.why != "" || tc.says != "" && !strings.Contains(e.why, tc.says) {
			t.Errorf("%s: says %q, want %q", tc.name, e.why, tc.says)
		}
		if tc.says != "" && held*15 < int(effectFor.Seconds()) {
			t.Errorf("%s: said after %d samples, before %v were over", tc.name, held, effectFor)
		}
	}
}

// Engines that were updated are believed again, though not at once.
func TestEffectIsForgiven(t *testing.T) {
	var e effect
	n := 0
	for ; n < 80; n++ {
		e.watch(effectSample(n, 0, 81920))
	}
	if e.why == "" {
		t.Fatal("engines that ignore the knob were not noticed")
	}
	for ; n < 400 && e.why != ""; n++ {
		e.watch(effectSample(n, 1, 40960))
	}
	if after := time.Duration(n-80) * 15 * time.Second; e.why != "" || after > time.Hour {
		t.Errorf("after %v: %q", after, e.why)
	}
}

// A clock that goes back starts the evidence over.
func TestEffectAfterClockWentBack(t *testing.T) {
	var e effect
	for n := range 80 {
		e.watch(effectSample(n, 0, 81920))
	}
	e.watch(effectSample(0, 0, 81920))
	if e.why != "" || sumPoints(e.loaded).Finished != 10 {
		t.Errorf("says %q of %+v", e.why, e)
	}
}
