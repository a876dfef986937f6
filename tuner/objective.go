package tuner

import "math"

// Cost is the objective of a window: seconds a request costs its user, lower is
// better. It is a weighted mean of the end-to-end time, the time in system by
// Little's law (requests in flight / completion rate), the TTFT and the restore
// time, so its unit stays seconds whatever the weights.
//
// End-to-end time leads because under open-loop demand throughput equals demand
// whatever the parameters are, and because a fleet-wide mean of it is the least
// noisy of the signals; TTFT alone would drive a lightly loaded fleet to never
// restore. ok is false when a weighted part is not known.
func (o Objective) Cost(s Signals) (seconds float64, ok bool) {
	if s.Requests <= 0 || s.Seconds <= 0 {
		return 0, false
	}
	sum := o.E2E*s.MeanE2E() + o.Throughput*s.InFlight()*s.Seconds/s.Requests + o.Restore*s.RestorePerRequest()
	if o.TTFT > 0 {
		if s.FirstTokens <= 0 {
			return 0, false
		}
		sum += o.TTFT * s.MeanTTFT()
	}
	cost := sum / (o.E2E + o.Throughput + o.TTFT + o.Restore)
	return cost, cost > 0 && !math.IsInf(cost, 0)
}
