package tuner

import (
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/kvtuner/kvtuner/store"
)

// evidence is the log behind the cost curves: the plugin's counters of each
// sample, with what the pool looked like then. It belongs to the workload, not
// to an arm: what a restore costs does not depend on who allowed it.
type evidence struct {
	at      time.Time
	points  []CurvePoint
	signals Signals
}

// curves are what the requests themselves say about restoring and recomputing.
type curves struct {
	// base is the TTFT of a request with nothing to compute, slope the seconds
	// each computed token adds, as recomputed requests showed them.
	base, slope float64
	// crowd is how much a recompute costs everyone, as a multiple of its own
	// time: it delays the requests decoding beside it.
	crowd   float64
	buckets []bucketCost
	// spent is the sum of end-to-end seconds of the same requests, the
	// denominator of a relative gain.
	spent float64
}

// bucketCost compares both actions for the requests of one bucket.
type bucketCost struct {
	reusable float64 // lower edge, tokens
	tokens   float64 // mean reusable tokens
	requests float64 // decayed count, both actions
	// restore and recompute are seconds a request, stderr that of their
	// difference; known tells whether restores were seen.
	restore, recompute, stderr float64
	known                      bool
}

// minCurveRequests is the least (decayed) number of requests behind the slope,
// and behind one bucket's restore cost.
const (
	minSlopeRequests  = 50
	minBucketRequests = 5
)

// fitCurves fits the cost model to the evidence, weighting it by half-lives.
//
//	recompute(bucket) = slope * tokens * (1 + batchCost * requests running beside it)
//	restore(bucket)   = TTFT of its restored requests - base - slope * tokens they computed
//
// ok is false while there is too little to fit.
func fitCurves(log []evidence, now time.Time, s Search) (curves, bool) {
	w := weigher{now: now, halfLife: s.HalfLife}
	c, ok := fitSlope(log, w)
	if !ok {
		return curves{}, false
	}
	running, weight := 0.0, 0.0
	for _, e := range log {
		k := w.at(e.at)
		running += k * e.signals.RunningSeconds / e.signals.Seconds / float64(e.signals.Engines)
		weight += k
		c.spent += k * e.signals.E2ESeconds
	}
	c.crowd = 1 + s.BatchCost*running/weight
	c.buckets = fitBuckets(log, w, c)
	for range sparseDoublings {
		w.halfLife *= 2
		c.fillSparse(fitBuckets(log, w, c))
	}
	return c, c.spent > 0
}

// sparseDoublings is how often the half-life doubles for buckets of which too
// few restores were seen: where hardly anything is restored only probes are
// left, and they are few.
const sparseDoublings = 2

// fillSparse takes the restore cost of buckets that have none from an older fit.
func (c *curves) fillSparse(older []bucketCost) {
	for i, b := range c.buckets {
		for _, o := range older {
			if !b.known && o.known && o.reusable == b.reusable {
				c.buckets[i].restore, c.buckets[i].stderr, c.buckets[i].known = o.restore, o.stderr, true
			}
		}
	}
}

type weigher struct {
	now      time.Time
	halfLife time.Duration
}

func (w weigher) at(t time.Time) float64 {
	return math.Exp2(-float64(w.now.Sub(t)) / float64(w.halfLife))
}

// fitSlope regresses the TTFT of recomputed requests on the tokens they had to
// compute.
func fitSlope(log []evidence, w weigher) (curves, bool) {
	var x, y, weights []float64
	n := 0.0
	for _, e := range log {
		for _, p := range e.points {
			if p.Load || p.Finished <= 0 {
				continue
			}
			k := w.at(e.at) * p.Finished
			x, y, weights = append(x, p.ComputedTokens/p.Finished), append(y, p.TTFTSeconds/p.Finished), append(weights, k)
			n += k
		}
	}
	if n < minSlopeRequests || len(x) < 3 {
		return curves{}, false
	}
	base, slope := stat.LinearRegression(x, y, weights, false)
	if !(slope > 0) || math.IsInf(slope, 0) {
		return curves{}, false
	}
	return curves{base: max(base, 0), slope: slope}, true
}

// bucketSum accumulates one bucket over the log.
type bucketSum struct {
	requests, tokens            float64
	restored                    float64
	weights, restoreObservation []float64
}

func fitBuckets(log []evidence, w weigher, c curves) []bucketCost {
	sums := map[float64]*bucketSum{}
	var edges []float64
	for _, e := range log {
		for _, p := range e.points {
			if p.Reusable <= 0 {
				continue
			}
			if sums[p.Reusable] == nil {
				sums[p.Reusable] = &bucketSum{}
				edges = insertSorted(edges, p.Reusable)
			}
			sums[p.Reusable].add(p, w.at(e.at), c)
		}
	}
	var out []bucketCost
	for _, edge := range edges {
		if b, ok := sums[edge].cost(edge, c); ok {
			out = append(out, b)
		}
	}
	return out
}

func (b *bucketSum) add(p CurvePoint, k float64, c curves) {
	b.requests += k * p.Started
	b.tokens += k * p.ReusableTokens
	if !p.Load || p.Finished <= 0 {
		return
	}
	b.restored += k * p.Finished
	extra := p.TTFTSeconds/p.Finished - c.base - c.slope*p.ComputedTokens/p.Finished
	b.restoreObservation = append(b.restoreObservation, extra)
	b.weights = append(b.weights, k*p.Finished)
}

func (b *bucketSum) cost(edge float64, c curves) (bucketCost, bool) {
	if b.requests <= 0 {
		return bucketCost{}, false
	}
	out := bucketCost{reusable: edge, requests: b.requests, tokens: b.tokens / b.requests}
	out.recompute = c.slope * out.tokens * c.crowd
	if b.restored < minBucketRequests || len(b.weights) < 2 {
		return out, true
	}
	mean, std := stat.PopMeanStdDev(b.restoreObservation, b.weights)
	out.restore, out.known = max(mean, 0), true
	out.stderr = std / math.Sqrt(effectiveN(b.weights))
	return out, true
}

// effectiveN is Kish's effective sample size of weighted observations.
func effectiveN(weights []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, w := range weights {
		sum += w
		squares += w * w
	}
	return sum * sum / squares
}

func insertSorted(edges []float64, e float64) []float64 {
	i := len(edges)
	for i > 0 && edges[i-1] > e {
		i--
	}
	edges = append(edges, 0)
	copy(edges[i+1:], edges[i:])
	edges[i] = e
	return edges
}

// prediction is what the model expects of a candidate.
type prediction struct {
	// gain is the relative decrease of the end-to-end time; its standard error.
	gain, stderr float64
	// changes tells whether any request would be treated differently.
	changes bool
}

// modelError is the standard deviation credited to the cost model itself: what
// it leaves out (others' lookups, the router, the cache that a restore fills) is
// worth a few percent of the end-to-end time.
const modelError = 0.03

// prior of a trial: the prediction as an estimate of the log cost ratio.
func (p prediction) prior() estimate {
	return estimate{mean: math.Log1p(-min(p.gain, 0.9)), variance: p.stderr*p.stderr + modelError*modelError}
}

// predict the gain of the token minimum to over from, the queue gate left as it
// is: requests in the buckets between them change their action. A bucket of
// which no restores were seen counts as no gain, uncertain by all that
// recomputing it costs.
func (c curves) predict(from, to store.Tokens) prediction {
	var p prediction
	variance := 0.0
	for _, b := range c.buckets {
		before, after := loads(from, b.reusable), loads(to, b.reusable)
		if before == after {
			continue
		}
		p.changes = true
		benefit, stderr := b.recompute-b.restore, b.stderr
		if !b.known {
			benefit, stderr = 0, b.recompute
		}
		if !after {
			benefit = -benefit
		}
		p.gain += b.requests * benefit / c.spent
		variance += math.Pow(b.requests*stderr/c.spent, 2)
	}
	p.stderr = math.Sqrt(variance)
	return p
}

// record of the curves for a decision.
func (c *curves) record() []store.CurveBucket {
	if c == nil {
		return nil
	}
	var out []store.CurveBucket
	for _, b := range c.buckets {
		r := store.CurveBucket{Reusable: b.reusable, Tokens: b.tokens, Requests: b.requests, RecomputeSeconds: b.recompute}
		if b.known {
			restore, stderr := b.restore, b.stderr
			r.RestoreSeconds, r.StandardError = &restore, &stderr
		}
		out = append(out, r)
	}
	return out
}

// loads tells whether the requests of a bucket may restore under a minimum.
func loads(minimum store.Tokens, edge float64) bool {
	return minimum != store.Never && edge >= float64(minimum)
}
