package plugin

import (
	"math"

	"github.com/kvtuner/kvtuner/store"
)

// rule is the per-request cost rule, ready for the hot path: within the
// thresholds and the gate, a request is restored if
//
//	restore * factor < slope * tokens * (1 + crowding * running)
//
// that is, if the seconds that a restore of its size is expected to add to its
// own TTFT are fewer than those that computing its tokens takes from it and from
// the requests running beside it. restore, slope and crowding come with the
// parameter document, from the whole pool; running and factor are the endpoint's
// own, now (see restores). What a recompute costs others is what makes the rule
// worth having: a study on a fleet model found it within 1% of the best fixed
// thresholds of every phase of a shifting load with it, and 10% behind without.
type rule struct {
	base, slope, crowding float64
	restore               [costBuckets]float64 // seconds; NaN is not known
	mean                  float64              // seconds of a restore, over all of them
	until                 int64                // since the policy's epoch
}

// newRule compiles valid costs that are dropped at until.
func newRule(c *store.Costs, until int64) *rule {
	r := &rule{base: c.BaseSeconds, slope: c.SecondsPerToken, crowding: c.Crowding, until: until}
	for i := range r.restore {
		r.restore[i] = math.NaN()
	}
	seconds, n := 0.0, 0.0
	for _, b := range c.Restores {
		r.restore[costBucket(b.Reusable)] = b.Seconds
		weight := float64(max(b.Requests, 1))
		seconds, n = seconds+weight*b.Seconds, n+weight
	}
	if n > 0 {
		r.mean = seconds / n
	}
	return r
}

// expects is what a restore of so many tokens adds to a TTFT, in seconds; ok is
// false where that is not known.
func (r *rule) expects(tokens int) (seconds float64, ok bool) {
	seconds = r.restore[costBucket(tokens)]
	return seconds, seconds >= 0
}

// recompute is what computing so many tokens beside others costs, in seconds.
func (r *rule) recompute(tokens int, running int64) float64 {
	return r.slope * float64(tokens) * (1 + r.crowding*float64(running))
}

// fallback says why the rule cannot judge a request, which the thresholds alone
// decide then.
type fallback uint8

const (
	judged          fallback = iota
	fallbackNoCosts          // the document has none
	fallbackExpired          // it has, but they are too old
	fallbackQueues           // the engine's running requests are not known now
	fallbackBucket           // of restores of this size nothing is known

	fallbacks = iota
)

var fallbackNames = [fallbacks]string{
	fallbackNoCosts: "no_costs", fallbackExpired: "expired", fallbackQueues: "queues", fallbackBucket: "bucket",
}

// dearer says whether restoring is expected to cost more than computing; if it
// cannot be told it is not, and why is counted.
func (p *Policy) dearer(r *rule, e *endpoint, tokens int, now int64) bool {
	dearer, why := p.judge(r, e, tokens, now)
	if why != judged {
		p.metrics.fellBack(why)
	}
	return dearer
}

func (p *Policy) judge(r *rule, e *endpoint, tokens int, now int64) (bool, fallback) {
	switch {
	case r == nil:
		return false, fallbackNoCosts
	case now >= r.until:
		return false, fallbackExpired
	case e == nil:
		return false, fallbackQueues
	}
	running, fresh := e.batch.running(p.decay, now)
	if !fresh {
		return false, fallbackQueues
	}
	restore, known := r.expects(tokens)
	if !known {
		return false, fallbackBucket
	}
	return restore*e.restores.factor() > r.recompute(tokens, running), judged
}
