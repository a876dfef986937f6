package tuner

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// Constants of the change detector: two-sided CUSUM (Page 1954) on standardised
// log costs. The level is learned from few samples, so that the allowance of one
// standard deviation covers its error as well; a shift of two deviations is
// noticed within about ten samples. False alarms on a stationary cost are rarer
// than one in 10^4 samples, which the tests check; one costs nothing but a
// forgotten search state.
const (
	cusumAllowance = 1
	cusumThreshold = 8
	cusumLearn     = 24
)

// workload is what the requests are, whatever the parameters do to them: logs of
// prompt tokens a request and of requests in flight an engine.
type workload [2]float64

const inFlight = 1 // its place in a workload

// workloadRadius is the distance at which two workloads differ: a factor of 1.65
// in one coordinate. Bursts within a block stay below it.
const workloadRadius = 0.5

func workloadOf(s Signals) (workload, bool) {
	if s.Requests <= 0 || s.Prompt <= 0 || s.Engines == 0 || s.InFlight() <= 0 {
		return workload{}, false
	}
	return workload{math.Log(s.Prompt / s.Requests), math.Log(s.InFlight() / float64(s.Engines))}, true
}

func (w workload) distance(o workload) float64 { return math.Hypot(w[0]-o[0], w[1]-o[1]) }

// workloadMoved tells that the requests are not those for which the search has
// learned what it knows. It notices in one block what the cost may show late.
func (c *controller) workloadMoved() bool {
	block := c.recent(c.settings.blockSamples())
	now, ok := workloadOf(total(block))
	if !ok || len(block) < c.settings.blockSamples() || !c.settings.has(ChangeDetection) {
		return false
	}
	known := c.climber.Workload
	if known == nil {
		c.climber.Workload = &now
		return false
	}
	return known.distance(now) > workloadRadius
}

// cusum notices that the incumbent's cost has left its band.
type cusum struct {
	learned   []float64
	mean, dev float64
	up, down  float64
}

// add a log cost; true means the level has changed, and the detector starts over.
func (c *cusum) add(logCost float64) bool {
	if len(c.learned) < cusumLearn {
		c.learned = append(c.learned, logCost)
		if len(c.learned) == cusumLearn {
			c.mean = stat.Mean(c.learned, nil)
			c.dev = math.Sqrt(longRunVariance(c.learned))
		}
		return false
	}
	z := (logCost - c.mean) / c.dev
	c.up = max(0, c.up+z-cusumAllowance)
	c.down = max(0, c.down-z-cusumAllowance)
	if max(c.up, c.down) < cusumThreshold {
		return false
	}
	*c = cusum{}
	return true
}
