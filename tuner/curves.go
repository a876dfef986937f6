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
	requests float64 // both actions
	stopped  float64 // of those, recomputed
	// restore and recompute are seconds a request, stderr that of their
	// difference; known tells whether restores were seen.
	restore, recompute, stderr float64
	known                      bool
}

const (
	// minSlopeRequests is the least number of recomputed requests behind the
	// slope.
	minSlopeRequests = 50
	// minRestores is the least number of restored requests behind a bucket's
	// restore cost; where fewer were seen in search.evidence, the estimate
	// reaches back for them, maxReach times as far at most. Where hardly
	// anything is restored only probes are left, and they are few.
	minRestores = 8
	maxReach    = 4
)

// fitCurves fits the cost model to the evidence of the last search.evidence.
//
//	recompute(bucket) = slope * tokens * (1 + batchCost * requests running beside it)
//	restore(bucket)   = TTFT of its restored requests - base - slope * tokens they computed
//
// ok is false while there is too little to fit.
func fitCurves(log []evidence, now time.Time, s Search) (curves, bool) {
	recent := log
	for len(recent) > 0 && !recent[0].at.After(now.Add(-s.Evidence)) {
		recent = recent[1:]
	}
	c, ok := fitSlope(recent)
	if !ok {
		return curves{}, false
	}
	var running float64
	for _, e := range recent {
		running += e.signals.RunningSeconds / e.signals.Seconds / float64(e.signals.Engines)
		c.spent += e.signals.E2ESeconds
	}
	c.crowd = 1 + s.BatchCost*running/float64(len(recent))
	c.buckets = countBuckets(recent, c)
	c.fitRestores(log, len(log)-len(recent))
	return c, c.sound()
}

// sound tells that the fit can be calculated with.
func (c curves) sound() bool {
	values := []float64{c.base, c.slope, c.crowd, c.spent}
	for _, b := range c.buckets {
		values = append(values, b.tokens, b.requests, b.stopped, b.restore, b.recompute, b.stderr)
	}
	for _, v := range values {
		if !(v >= 0 && v <= largest) {
			return false
		}
	}
	return c.spent > 0
}

// fitSlope regresses the TTFT of recomputed requests on the tokens they had to
// compute.
func fitSlope(log []evidence) (curves, bool) {
	var x, y, weights []float64
	n := 0.0
	for _, e := range log {
		for _, p := range e.points {
			if p.Load || p.Finished <= 0 {
				continue
			}
			x, y, weights = append(x, p.ComputedTokens/p.Finished), append(y, p.TTFTSeconds/p.Finished), append(weights, p.Finished)
			n += p.Finished
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

// countBuckets sums the requests of each bucket, whichever action they got.
func countBuckets(log []evidence, c curves) []bucketCost {
	sums := map[float64]*bucketCost{}
	var edges []float64
	for _, e := range log {
		for _, p := range e.points {
			if p.Reusable <= 0 || p.Started <= 0 {
				continue
			}
			if sums[p.Reusable] == nil {
				sums[p.Reusable] = &bucketCost{reusable: p.Reusable}
				edges = insertSorted(edges, p.Reusable)
			}
			sums[p.Reusable].requests += p.Started
			sums[p.Reusable].tokens += p.ReusableTokens
			if !p.Load {
				sums[p.Reusable].stopped += p.Started
			}
		}
	}
	var out []bucketCost
	for _, edge := range edges {
		b := *sums[edge]
		b.tokens /= b.requests
		b.recompute = c.slope * b.tokens * c.crowd
		out = append(out, b)
	}
	return out
}

// restores are observations of restored requests, newest first: each sample's
// mean seconds added to TTFT, at a mean number of tokens restored.
type restores struct {
	tokens, extra, weights []float64
	n                      float64
}

func (r *restores) add(tokens, extra, n float64) {
	r.tokens, r.extra, r.weights = append(r.tokens, tokens), append(r.extra, extra), append(r.weights, n)
	r.n += n
}

func (r restores) enough() bool { return r.n >= minRestores && len(r.extra) >= 3 }

// fitRestores gives each bucket its restore cost. log[recent:] is the evidence
// of search.evidence; what is older is used, newest first, only where too few
// restores were seen. A bucket that stays without takes the line through all
// restores: a restore costs a fixed time and a time a token.
func (c *curves) fitRestores(log []evidence, recent int) {
	own := make([]restores, len(c.buckets))
	var all restores
	for i := len(log) - 1; i >= 0; i-- {
		for _, p := range log[i].points {
			b := c.bucket(p.Reusable)
			if !p.Load || p.Finished <= 0 || b < 0 {
				continue
			}
			extra := p.TTFTSeconds/p.Finished - c.base - c.slope*p.ComputedTokens/p.Finished
			if i >= recent || own[b].n < minRestores {
				own[b].add(c.buckets[b].tokens, extra, p.Finished)
			}
			if i >= recent || all.n < minRestores {
				all.add(c.buckets[b].tokens, extra, p.Finished)
			}
		}
	}
	for b := range c.buckets {
		switch {
		case own[b].enough():
			c.buckets[b].take(own[b].mean())
		case all.enough():
			c.buckets[b].take(all.line(c.buckets[b].tokens))
		}
	}
}

func (c *curves) bucket(edge float64) int {
	for i, b := range c.buckets {
		if b.reusable == edge {
			return i
		}
	}
	return -1
}

func (b *bucketCost) take(restore, stderr float64) {
	b.restore, b.stderr, b.known = max(restore, 0), stderr, true
}

// mean of the observations and its standard error.
func (r restores) mean() (value, stderr float64) {
	mean, std := stat.PopMeanStdDev(r.extra, r.weights)
	n := effectiveN(r.weights)
	stderr = std / math.Sqrt(max(n-1, 1))
	return mean, max(stderr, leastSpread*math.Abs(mean)/math.Sqrt(r.n))
}

// leastSpread is the relative standard deviation of one restore that is credited
// at least: a few equal values are luck.
const leastSpread = 0.3

// line through the observations, read at tokens; its standard error is that of
// the mean, twice over, because it is read where little was seen.
func (r restores) line(tokens float64) (value, stderr float64) {
	_, stderr = r.mean()
	alpha, beta := stat.LinearRegression(r.tokens, r.extra, r.weights, false)
	if !(beta >= 0) || math.IsInf(beta, 0) { // all of one length, or noise
		alpha, _ = r.mean()
		beta = 0
	}
	return alpha + beta*tokens, 2 * stderr
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

// The standard deviation credited to the cost model itself: what it leaves out
// (others' lookups, the router, the cache that a restore fills) may be worth a
// good part of what it predicts, and half a percent of the end-to-end time besides.
const (
	modelErrorShare = 0.4
	modelErrorFloor = 0.005
)

// prior of a trial: the prediction as an estimate of the log cost ratio.
func (p prediction) prior() estimate {
	share := modelErrorShare * p.gain
	return estimate{
		mean:     math.Log1p(-min(p.gain, 0.9)),
		variance: p.stderr*p.stderr + share*share + modelErrorFloor*modelErrorFloor,
	}
}

// predict the gain of to over from, the queue gate left as it is: requests in the
// buckets that one of them restores and the other does not change their action. A
// bucket of which no restores were seen counts as no gain, uncertain by all that
// recomputing it costs.
func (c curves) predict(from, to store.Params) prediction {
	var p prediction
	variance := 0.0
	for _, b := range c.buckets {
		before, after := b.loads(from), b.loads(to)
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

// predictGate is the gain of restoring all that the queue gate alone stops.
func (c curves) predictGate(in store.Params) prediction {
	p := prediction{changes: true}
	variance := 0.0
	for _, b := range c.buckets {
		if b.known && b.loads(in) {
			p.gain += b.stopped * (b.recompute - b.restore) / c.spent
			variance += math.Pow(b.stopped*b.stderr/c.spent, 2)
		}
	}
	p.stderr = math.Sqrt(variance)
	return p
}

// part of a predicted gain: half of it, give or take a quarter.
func (p prediction) part() prediction {
	return prediction{gain: p.gain / 2, stderr: math.Hypot(p.stderr/2, p.gain/4), changes: true}
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

// loads tells whether the requests of the bucket are restored while the gate is
// open. Adaptive withholds by itself what it knows to be dear, so that a lower
// minimum adds only what it would restore, and a higher one takes only that away.
func (b bucketCost) loads(p store.Params) bool {
	if p.MinExternalReusableTokens == store.Never || b.reusable < float64(p.MinExternalReusableTokens) {
		return false
	}
	return p.LoadPolicy != store.Adaptive || !b.known || b.restore < b.recompute
}
