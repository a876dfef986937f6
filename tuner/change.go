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

// promptRatio is the factor between two mean prompt lengths at which the requests
// are another workload. How many are in flight does not count: that changes with
// each burst, and with the parameters.
const promptRatio = 1.4

// otherWorkload tells that the prompts of two stretches differ, as far as both are
// known from at least so many requests. Engines count a prompt with its first
// token: completed requests lag behind in a burst.
func otherWorkload(a, b Signals, least float64) bool {
	if a.FirstTokens < least || b.FirstTokens < least || a.Prompt <= 0 || b.Prompt <= 0 {
		return false
	}
	ratio := (a.Prompt / a.FirstTokens) / (b.Prompt / b.FirstTokens)
	return ratio > promptRatio || ratio < 1/promptRatio
}

// workloadMoved tells that the requests are not those for which the search has
// learned what it knows. It notices in one block what the cost may show late.
func (c *controller) workloadMoved() bool {
	block := c.recent(c.settings.blockSamples())
	if len(block) < c.settings.blockSamples() || !c.settings.has(ChangeDetection) {
		return false
	}
	now := total(block)
	if c.climber.Known == nil {
		c.climber.Known = &prompts{Requests: now.FirstTokens, Tokens: now.Prompt}
		return false
	}
	return otherWorkload(c.climber.Known.signals(), now, float64(c.settings.Trial.MinRequests))
}

// prompts of the workload for which a search has learned what it knows.
type prompts struct {
	Requests float64 `json:"requests"`
	Tokens   float64 `json:"tokens"`
}

func (p prompts) signals() Signals { return Signals{FirstTokens: p.Requests, Prompt: p.Tokens} }

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
