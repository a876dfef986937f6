package report

import (
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// point is an average over a stretch that ends at At; V is NaN if nothing was
// completed in it.
type point struct {
	At time.Duration
	V  float64
}

// windows are the averaging lengths to choose from.
var windows = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
}

// window is the shortest that needs at most so many points.
func window(total time.Duration, points int) time.Duration {
	for _, w := range windows {
		if total <= w*time.Duration(points) {
			return w
		}
	}
	return windows[len(windows)-1]
}

// average sums the seconds of each window and lets of make a value of the sum.
func average(all []fleet.Second, w time.Duration, of func(sum fleet.Second, over time.Duration) float64) []point {
	n := int(w / time.Second)
	var out []point
	for from := 0; from < len(all); from += n {
		to := min(from+n, len(all))
		var sum fleet.Second
		for _, s := range all[from:to] {
			sum.Requests += s.Requests
			sum.TTFT += s.TTFT
			sum.E2E += s.E2E
		}
		over := time.Duration(to-from) * time.Second
		out = append(out, point{time.Duration(to) * time.Second, of(sum, over)})
	}
	return out
}

func throughput(s fleet.Second, over time.Duration) float64 {
	return float64(s.Requests) / over.Seconds()
}

func meanTTFT(s fleet.Second, _ time.Duration) float64 { return s.TTFT / float64(s.Requests) }

func meanE2E(s fleet.Second, _ time.Duration) float64 { return s.E2E / float64(s.Requests) }

// extent of the measured values.
func extent(all ...[]point) (low, high float64, any bool) {
	for _, series := range all {
		for _, p := range series {
			if !measured(p.V) {
				continue
			}
			if !any {
				low, high, any = p.V, p.V, true
			}
			low, high = min(low, p.V), max(high, p.V)
		}
	}
	return low, high, any
}
