package fleet

import (
	"math"
	"testing"
	"time"
)

// A fleet under a constant workload is in a steady state from the start: what
// holds over 300 s must hold half an hour later, or long schedules would judge
// policies by a drift of the model.
func TestFleetIsStationary(t *testing.T) {
	for _, c := range seedCells {
		if c.prefix == 1024 || c.prefix == 8192 && c.streams == 32 {
			continue // between the others; left out for time
		}
		later := map[string]float64{}
		for _, setting := range []Setting{loading, recompute, threshold} {
			f, err := newMeasured(t.Context(), Scenario{Name: "steady", Profile: Published(), Workload: cell(c.prefix, c.streams)}, setting, 21)
			if err != nil {
				t.Fatal(err)
			}
			window := func() Stats {
				f.ResetStats()
				f.Advance(PublishedDuration)
				return f.Stats()
			}
			first := window()
			f.Advance(20 * time.Minute)
			last := window()
			later[setting.Policy] = last.RequestsPerSecond
			tolerance := 0.04
			if setting == loading {
				tolerance = 0.25 // a collapse is noisy
			}
			if drift := last.RequestsPerSecond/first.RequestsPerSecond - 1; math.Abs(drift) > tolerance {
				t.Errorf("%d/C%d %s: %.2f requests/s at first, %.2f later", c.prefix, c.streams, setting, first.RequestsPerSecond, last.RequestsPerSecond)
			}
			for what, drift := range map[string]float64{
				"external": last.ExternalPromptShare - first.ExternalPromptShare,
				"GPU hit":  last.GPUHitShare - first.GPUHitShare,
			} {
				if math.Abs(drift) > 0.04 {
					t.Errorf("%d/C%d %s: %s share moved by %+.3f", c.prefix, c.streams, setting, what, drift)
				}
			}
		}
		if wins := later["load"] > later["recompute"]; wins != c.loadWins {
			t.Errorf("%d/C%d after 25 minutes: %v; load should win: %v", c.prefix, c.streams, later, c.loadWins)
		}
	}
}
