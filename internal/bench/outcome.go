package bench

import (
	"math"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
)

// stretch is the measurement of a phase, or of a whole run.
type stretch struct {
	scenario string
	pair     string // of policies found in hindsight
	stats    fleet.Stats
	activity lab.Activity
}

// outcome is a run as a bench keeps it.
type outcome struct {
	phases []stretch
	whole  stretch
}

func newOutcome(o lab.Outcome) outcome {
	var out outcome
	for _, p := range o.Phases {
		out.phases = append(out.phases, stretch{scenario: p.Scenario, stats: p.Stats, activity: p.Activity})
	}
	out.whole = join(out.phases)
	out.whole.stats = o.Stats
	return out
}

// join measures several phases as one.
func join(phases []stretch) stretch {
	if len(phases) == 1 {
		return phases[0]
	}
	var all []fleet.Stats
	var activity lab.Activity
	for _, p := range phases {
		all = append(all, p.stats)
		activity.Moves += p.activity.Moves
		activity.Trials += p.activity.Trials
		activity.Aborted += p.activity.Aborted
	}
	return stretch{stats: combine(all), activity: activity}
}

// combine measures consecutive phases as one. Means are over the requests of all
// phases, rates and queues over their time. Quantiles and the shares of prompt
// tokens cannot be had from those of the phases and are NaN.
func combine(phases []fleet.Stats) fleet.Stats {
	nan := math.NaN()
	c := fleet.Stats{TTFTP50: nan, TTFTP99: nan, ExternalPromptShare: nan, GPUHitShare: nan, LookupMean: nan}
	var tokens, ttft, itl, e2e, waiting, written float64
	for _, s := range phases {
		seconds := s.Duration.Seconds()
		c.Duration += s.Duration
		c.Requests += s.Requests
		tokens += s.OutputTokensPerSecond * seconds
		waiting += s.WaitingMean * seconds
		written += s.NVMeWriteGiBps * seconds
		if n := float64(s.Requests); n > 0 {
			ttft, itl, e2e = ttft+s.TTFTMean*n, itl+s.ITLMean*n, e2e+s.E2EMean*n
		}
	}
	seconds, n := c.Duration.Seconds(), float64(c.Requests)
	c.RequestsPerSecond, c.OutputTokensPerSecond = n/seconds, tokens/seconds
	c.TTFTMean, c.ITLMean, c.E2EMean = ttft/n, itl/n, e2e/n
	c.WaitingMean, c.NVMeWriteGiBps = waiting/seconds, written/seconds
	return c
}
