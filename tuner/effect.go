package tuner

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Constants of the effect check. What it has seen counts half after effectHalfLife,
// and it must say the same for effectFor of samples in a row. Obedience is 1 when
// engines compute what they are told to and 0 when they restore all the same. In
// 36 h of simulated pools (twelve scenarios, two seeds) it was 0.34 at the least, on
// pools that ignore the knob 0.13 at the most. More must have been restored than was
// allowed, too, so that evidence which promises too much is not taken for it.
const (
	effectHalfLife  = 15 * time.Minute
	effectFor       = 5 * time.Minute
	effectPairs     = 15
	effectObedience = 0.2
	// effectNothing is how many requests are allowed to restore before it is strange
	// that nothing was.
	effectNothing = 300
)

// effect notices engines on which the knob does nothing.
type effect struct {
	at time.Time // of the last sample
	// By bucket of reusable tokens, what became of requests.
	recomputed, loaded map[float64]CurvePoint
	// restored tokens; busy, anything at all that comes of restoring.
	restored, busy float64

	since time.Time // of the samples in a row that say so
	why   string    // once they have for long enough
}

// watch one more sample.
func (e *effect) watch(s Sample) {
	if e.recomputed == nil || s.To.Before(e.at) {
		*e = effect{recomputed: map[float64]CurvePoint{}, loaded: map[float64]CurvePoint{}}
	}
	e.forget(s.To)
	e.restored += s.Signals.External
	e.busy += s.Signals.External + s.Signals.LookupSeconds + s.Signals.CopySeconds
	for _, p := range s.Plugin.Curve {
		into := e.recomputed
		if p.Load {
			into = e.loaded
		}
		if p.Reusable > 0 {
			into[p.Reusable] = into[p.Reusable].plus(p, 1)
		}
	}
	e.conclude(s.To, e.nothing())
}

// forget what is long ago.
func (e *effect) forget(now time.Time) {
	keep := math.Exp2(-float64(now.Sub(e.at)) / float64(effectHalfLife))
	if e.at.IsZero() {
		keep = 0
	}
	e.at, e.restored, e.busy = now, e.restored*keep, e.busy*keep
	for _, points := range []map[float64]CurvePoint{e.recomputed, e.loaded} {
		for bucket, p := range points {
			points[bucket] = CurvePoint{}.plus(p, keep)
		}
	}
}

func (e *effect) conclude(now time.Time, why string) {
	switch {
	case why == "":
		e.since, e.why = time.Time{}, ""
	case e.since.IsZero():
		e.since = now
	case now.Sub(e.since) >= effectFor && e.why == "":
		e.why = why
	}
}

// nothing says how engines do not do what the plugin tells them; empty if they do,
// or if too little was seen.
func (e *effect) nothing() string {
	allowed, stopped := sumPoints(e.loaded), sumPoints(e.recomputed)
	switch obedience, pairs := obedience(e.recomputed, e.loaded); {
	case pairs >= effectPairs && obedience < effectObedience && e.restored >= allowed.ReusableTokens+stopped.ReusableTokens/4:
		return fmt.Sprintf("the engines ignore the knob: %.0f requests that were told to recompute had their tokens restored all the same (max_load_tokens needs vLLM 0.31.0, and an Endpoint Picker that passes kv_transfer_params on)", stopped.Finished)
	case allowed.Finished >= effectNothing && e.busy == 0:
		return fmt.Sprintf("the engines restore nothing: %.0f requests were allowed to, and no engine has looked up, copied or counted a token (is there an offloading connector, and is the evidence about its tiers?)", allowed.Finished)
	}
	return ""
}

// obedience is how much of what recomputed requests could have restored they
// computed, beyond what restored requests of the same bucket did. Buckets weigh by
// their pairs: of r recomputed and l restored requests r*l/(r+l), as in the variance
// of a difference of means.
func obedience(recomputed, loaded map[float64]CurvePoint) (mean, pairs float64) {
	for _, bucket := range sortedKeys(recomputed) {
		r, l := recomputed[bucket], loaded[bucket]
		if r.Finished < 1 || l.Finished < 1 || r.Started <= 0 || r.ReusableTokens <= 0 {
			continue
		}
		more := r.ComputedTokens/r.Finished - l.ComputedTokens/l.Finished
		weight := r.Finished * l.Finished / (r.Finished + l.Finished)
		mean += weight * more / (r.ReusableTokens / r.Started)
		pairs += weight
	}
	return mean / max(pairs, 1), pairs
}

func sortedKeys(m map[float64]CurvePoint) []float64 { return slices.Sorted(maps.Keys(m)) }

// plus adds a share of another point of the same bucket.
func (c CurvePoint) plus(o CurvePoint, share float64) CurvePoint {
	return CurvePoint{
		Started: c.Started + share*o.Started, ReusableTokens: c.ReusableTokens + share*o.ReusableTokens, Finished: c.Finished + share*o.Finished,
		TTFTSeconds: c.TTFTSeconds + share*o.TTFTSeconds, ComputedTokens: c.ComputedTokens + share*o.ComputedTokens,
	}
}

func sumPoints(points map[float64]CurvePoint) CurvePoint {
	var sum CurvePoint
	for _, bucket := range sortedKeys(points) {
		sum = sum.plus(points[bucket], 1)
	}
	return sum
}
