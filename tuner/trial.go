package tuner

import (
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// minBlockSamples is the least number of judged samples that makes a block.
const minBlockSamples = 3

// maxUnknown is how many samples in a row may be missing before a trial ends:
// nothing may run that cannot be watched.
const maxUnknown = 3

// switchback is one trial in progress: blocks of candidate and incumbent take
// turns over the whole pool, beginning with the incumbent's samples from before.
// Endpoints are never split between the arms, because engines share storage: a
// restore on one slows the others, and both arms would pay for the candidate.
type switchback struct {
	id       string
	proposal proposal
	started  time.Time
	// onCandidate tells which arm runs; acked is since when every replica has
	// it in force, zero while that is awaited from switched on.
	onCandidate bool
	switched    time.Time
	acked       time.Time
	since       time.Time // the present block's beginning
	// washout of the present block: trial.washout, or longer if restores of the
	// other arm were waiting for longer.
	washout time.Duration

	before  Signals // the incumbent, before the trial
	blocks  []block
	sums    map[store.Arm]Signals
	judged  map[store.Arm]int
	samples []store.Sample

	fullBlock int       // samples in the judged part of a block
	latest    []Signals // of the present block, fullBlock at most
	prolonged bool      // the candidate's first block
	unknown   int       // in a row
	regressed int       // in a row
}

// verdict of a trial, or of a look at one.
type verdict string

const (
	undecided    verdict = ""
	better       verdict = "better"
	noWorse      verdict = "no worse"
	worse        verdict = "worse"
	noDifference verdict = "no detectable difference"
	aborted      verdict = "aborted"   // its own fault
	cancelled    verdict = "cancelled" // not its fault
)

func (t *switchback) arm() store.Arm {
	if t.onCandidate {
		return store.ArmCandidate
	}
	return store.ArmBaseline
}

// candidateBlocks begun so far.
func (t *switchback) candidateBlocks() int {
	n := 0
	for _, b := range t.blocks {
		if b.candidate {
			n++
		}
	}
	return n
}

// begin the next block on the other arm.
func (t *switchback) begin(candidate bool, now time.Time) {
	t.onCandidate, t.since, t.switched, t.acked = candidate, now, now, time.Time{}
	t.unknown, t.regressed, t.latest = 0, 0, nil
	t.blocks = append(t.blocks, block{candidate: candidate})
}

// workloadMoved tells that the requests are no longer those of before the trial,
// so that its blocks cannot be compared. Not for a shed: what gets through a collapse
// are other requests than what waits in it.
func (t *switchback) workloadMoved(s Signals, least float64) bool {
	t.latest = append(t.latest, s)
	t.latest = t.latest[max(0, len(t.latest)-t.fullBlock):]
	sum := Signals{}
	for _, l := range t.latest {
		sum = sum.plus(l)
	}
	return len(t.latest) == t.fullBlock && otherWorkload(t.before, sum, least)
}

// judge adds a sample of the present block that lies beyond its washout.
func (t *switchback) judge(s Sample, logCost float64) {
	b := &t.blocks[len(t.blocks)-1]
	b.logCosts = append(b.logCosts, logCost)
	t.sums[t.arm()] = t.sums[t.arm()].plus(s.Signals)
	t.judged[t.arm()]++
}

// blockDone reports whether the present block has run its time and can be
// judged; overdue, that it has run for twice its time and cannot.
func (t *switchback) blockDone(now time.Time, c Trial) (done, overdue bool) {
	if t.acked.IsZero() {
		return false, false
	}
	ran := now.Sub(t.acked)
	enough := len(t.blocks[len(t.blocks)-1].logCosts) >= minBlockSamples
	if t.prolonged && t.onCandidate {
		return ran >= 2*c.Block && enough, false
	}
	return ran >= c.Block && enough, ran >= 2*c.Block && !enough
}

// prolong the candidate's first block to twice its length if it is likely to be
// better: if it is, going back would cost the fleet what it has just gained.
func (t *switchback) prolong(c Trial, incumbent []float64) bool {
	if t.prolonged || !t.onCandidate || t.candidateBlocks() > 1 || t.proposal.prior.variance == 0 {
		return false
	}
	seen, ok := compare(t.blocks, pooledVariance(incumbent, t.blocks))
	t.prolonged = ok && c.likely(seen.with(t.proposal.prior))
	return t.prolonged
}

// detectable is the smallest improvement, in log cost, that an explored candidate
// must have to be found better within the budget of blocks: what is worth moving
// for, or the half width of the interval at the end. noise is the variance of one
// sample's log cost.
func (c Trial) detectable(noise float64, blockSamples int) float64 {
	n, m := float64(c.MaxBlocks*blockSamples), float64((c.MaxBlocks+1)*blockSamples)
	return max(c.MinEffect, confidenceHalfWidth(noise*(1/n+1/m), c.Alpha))
}

// likelyAlpha is the chance of being wrong that is taken where nothing lasts: for
// when to begin a trial and how long to stay on its candidate.
const likelyAlpha = 0.1

// likely tells that an estimate promises an improvement worth moving for.
func (c Trial) likely(e estimate) bool {
	return e.credible(likelyAlpha).High <= -c.MinEffect
}

// look judges the trial as it stands.
//
// Worse: the whole confidence sequence of the trial alone lies above zero.
// Better: the whole interval lies below zero and the estimate is worth moving
// for. No detectable difference: the interval excludes that, or the trial would
// end undecided even if all goes on as it went.
//
// Where the cost curves predicted a gain, that prediction counts as evidence with
// its own uncertainty. Better then wants three things, at the end of a block: a
// whole block of the candidate, an improvement in the trial itself that is worth
// moving for and a good part of the predicted one, and a posterior that is sure.
func (t *switchback) look(c Trial, incumbent []float64) (verdict, *store.Interval) {
	if !t.enough(c) {
		return undecided, nil
	}
	seen, ok := compare(t.blocks, pooledVariance(incumbent, t.blocks))
	if !ok {
		return undecided, nil
	}
	i := seen.interval(c.Alpha)
	if i.Low > 0 {
		return worse, &i
	}
	switch {
	case i.High < 0 && i.Estimate <= -c.MinEffect && t.bracketed(c):
		return better, &i
	case t.proposal.prior.variance > 0:
		return t.lookAtPredicted(seen, c)
	case i.Low > -c.MinEffect, t.pairDone() && t.undecidable(seen, c):
		return noDifference, &i
	}
	return undecided, &i
}

// lookAtPredicted judges a candidate of which the cost curves predicted a gain.
// A step back towards what the operator started from needs no proof of a gain,
// only that a loss worth a move is excluded; where the incumbent itself has not been
// proven for the requests, that it is unlikely.
func (t *switchback) lookAtPredicted(seen estimate, c Trial) (verdict, *store.Interval) {
	post := seen.with(t.proposal.prior)
	i := post.credible(c.Alpha)
	switch {
	case t.proposal.origin == fromHome && t.onCandidate && t.blockFull() && post.credible(likelyAlpha).High <= c.MinEffect:
		return noWorse, &i
	case t.proposal.origin == fromReturn && t.pairDone() && i.High <= c.MinEffect:
		return noWorse, &i
	case t.proposal.origin == fromReturn && t.pairDone():
		return noDifference, &i
	case i.High < 0 && i.Estimate <= -c.MinEffect && seen.mean <= -t.least(c) && t.blockFull():
		return better, &i
	case t.pairDone() && i.Estimate > -c.MinEffect:
		return noDifference, &i
	}
	return undecided, &i
}

// shownPart is the part of a predicted gain that a trial must show by itself.
const shownPart = 1. / 3

// least improvement, in log cost, that the trial must show by itself.
func (t *switchback) least(c Trial) float64 {
	return max(-math.Log1p(-c.MinEffect), -shownPart*t.proposal.prior.mean)
}

// blockFull tells that the present block is whole: a prediction is weighed with
// whole blocks only, so that it does not win by being asked often.
func (t *switchback) blockFull() bool {
	return len(t.blocks[len(t.blocks)-1].logCosts)%t.fullBlock == 0
}

// pairDone tells that a block of the incumbent after one of the candidate is
// complete enough to be judged.
func (t *switchback) pairDone() bool {
	return !t.onCandidate && t.candidateBlocks() >= 1 && len(t.blocks[len(t.blocks)-1].logCosts) >= minBlockSamples
}

// bracketed tells that the candidate's last block is better than the incumbent's
// after it, too. A workload that changes with the first switch looks like the
// greatest of gains otherwise. A shed does not wait for that: going back would be
// going back into the collapse.
func (t *switchback) bracketed(c Trial) bool {
	if t.proposal.origin == fromShed {
		return true
	}
	if !t.pairDone() {
		return false
	}
	n := len(t.blocks)
	candidate, after := t.blocks[n-2].logCosts, t.blocks[n-1].logCosts
	return len(candidate) > 0 && mean(after)-mean(candidate) >= c.MinEffect
}

// undecidable tells that the trial would end undecided even if the estimate
// stayed what it is while the remaining blocks narrowed its interval.
func (t *switchback) undecidable(e estimate, c Trial) bool {
	e.variance *= float64(t.candidateBlocks()) / float64(c.MaxBlocks)
	return e.interval(c.Alpha).High > 0
}

// enough tells whether both arms have been seen for long enough to be judged. The
// incumbent of a shed was seen only for as long as its collapse was watched, and
// its requests are few because they do not complete.
func (t *switchback) enough(c Trial) bool {
	ready := t.judged[store.ArmCandidate] >= minBlockSamples && t.sums[store.ArmCandidate].Requests >= float64(c.MinRequests)
	if t.proposal.origin == fromShed {
		return ready
	}
	return ready && t.judged[store.ArmBaseline] >= minBlockSamples && t.sums[store.ArmBaseline].Requests >= float64(c.MinRequests)
}

// maxTrialSamples bounds the samples that a trial's record keeps; the latest stay.
const maxTrialSamples = 500

func (t *switchback) show(s store.Sample) {
	t.samples = append(t.samples, s)
	t.samples = t.samples[max(0, len(t.samples)-maxTrialSamples):]
}

// evidence of the trial for its record.
func (t *switchback) evidence(v verdict, i *store.Interval, incumbent store.Params, o Objective, queries []string) *store.Evidence {
	e := &store.Evidence{Verdict: string(v), Effect: i, Samples: t.samples, Queries: queries, Curves: t.proposal.curves}
	params := map[store.Arm]store.Params{store.ArmBaseline: incumbent, store.ArmCandidate: t.proposal.params}
	for _, arm := range []store.Arm{store.ArmBaseline, store.ArmCandidate} {
		s := t.sums[arm]
		if t.judged[arm] == 0 {
			continue
		}
		e.Arms = append(e.Arms, store.ArmSummary{
			Arm: arm, Params: params[arm], Samples: t.judged[arm], Requests: s.Requests, Signals: s.named(o),
		})
	}
	return e
}

// describe the effect in words.
func (t *switchback) describe(i *store.Interval) string {
	if i == nil {
		return "too little was seen to compare"
	}
	s := fmt.Sprintf("cost of a request %+.1f%% (%.0f%% confidence: %+.1f%% to %+.1f%%) over %d block(s)",
		100*i.Estimate, 100*i.Confidence, 100*i.Low, 100*i.High, i.N)
	if t.proposal.prior.variance > 0 {
		s += fmt.Sprintf(", the predicted %+.1f%% taken into account", 100*math.Expm1(t.proposal.prior.mean))
	}
	return s
}
