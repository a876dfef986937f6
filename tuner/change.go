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
