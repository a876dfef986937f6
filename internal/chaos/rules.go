package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// exposureWindow is the stretch that guard.maxExposure is a share of, and
// exposureSlack what a start may be late by: the candidate in the store outlives
// the decision to end it while that cannot be written.
const (
	exposureWindow = 4 * time.Hour
	exposureSlack  = 0.01
)

// exposure is the share of the last hours in which a candidate was published.
func (v *watch) exposure() float64 {
	oldest := v.w.now.Add(-exposureWindow)
	v.exposed = slices.DeleteFunc(v.exposed, func(t time.Time) bool { return t.Before(oldest) })
	return float64(len(v.exposed)) * tick.Seconds() / exposureWindow.Seconds()
}

// steps is the larger number of rungs between two pairs: powers of two from 64 to
// 32768 tokens, and from 1 to 64 waiting, with 1, inf and no gate at their ends,
// and the ends of bounds.
func steps(b store.Bounds, from, to store.Params) int {
	tokens := []store.Tokens{1, store.Never, b.MinExternalReusableTokens.Min, b.MinExternalReusableTokens.Max}
	for t := store.Tokens(64); t <= 32768; t *= 2 {
		tokens = append(tokens, t)
	}
	tokens = slices.DeleteFunc(tokens, func(t store.Tokens) bool {
		return t < b.MinExternalReusableTokens.Min || t > b.MinExternalReusableTokens.Max
	})
	queue := []int{1, 2, 4, 8, 16, 32, 64, store.NoGate, b.MaxWaitingRequests.Min, b.MaxWaitingRequests.Max}
	queue = slices.DeleteFunc(queue, func(n int) bool {
		return store.CompareWaiting(n, b.MaxWaitingRequests.Min) < 0 || store.CompareWaiting(n, b.MaxWaitingRequests.Max) > 0
	})
	return max(
		apart(tokens, cmp.Compare[store.Tokens], from.MinExternalReusableTokens, to.MinExternalReusableTokens),
		apart(queue, store.CompareWaiting, from.MaxWaitingRequests, to.MaxWaitingRequests),
	)
}

// apart counts the rungs from one value to another; a value between two rungs is
// one step from either.
func apart[T comparable](rungs []T, order func(a, b T) int, from, to T) int {
	slices.SortFunc(rungs, order)
	rungs = slices.Compact(rungs)
	place := func(v T) int {
		i, exact := slices.BinarySearchFunc(rungs, v, order)
		if exact {
			return 2 * i
		}
		return 2*i - 1
	}
	d := place(to) - place(from)
	return (max(d, -d) + 1) / 2
}

// opened tells whether a window of the schedule can be open: whether a minute that
// its expression names lies within its duration before now. An hour that a change
// of the clock repeats counts twice, one that it skips not at all.
func opened(s tuner.Schedule, now time.Time) bool {
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return false
	}
	for _, w := range s.Windows {
		for t := now.Truncate(time.Minute); t.After(now.Add(-w.Duration - time.Minute)); t = t.Add(-time.Minute) {
			if starts[w.Start](t.In(zone)) {
				return true
			}
		}
	}
	return len(s.Windows) == 0
}

// starts are the expressions that plans use, understood without a parser.
var starts = map[string]func(time.Time) bool{
	"0 * * * *":  func(t time.Time) bool { return t.Minute() == 0 },
	"30 * * * *": func(t time.Time) bool { return t.Minute() == 30 },
	"30 2 * * *": func(t time.Time) bool { return t.Hour() == 2 && t.Minute() == 30 },
	"15 1 * * *": func(t time.Time) bool { return t.Hour() == 1 && t.Minute() == 15 },
}

// of returns the record of the write of a revision, the latest if an older
// document made revisions come twice.
func (j *journal) of(revision int64) *store.Decision {
	for i := len(j.records) - 1; i >= 0; i-- {
		if j.records[i].Revision == revision {
			return &j.records[i]
		}
	}
	return nil
}

// clamped tells that the latest record that could change the incumbent is that of
// someone's document, of which only this much was permitted: the store may have had
// no room for it until another record came to be of the same revision.
func (j *journal) clamped(incumbent store.Params) bool {
	for i := len(j.records) - 1; i >= 0; i-- {
		if d := j.records[i]; d.From != d.To || d.Kind == store.KindDrift {
			return d.Kind == store.KindDrift && d.To == incumbent
		}
	}
	return false
}

// restartedSince tells that a tuner has taken over after the last record of a
// revision below this one.
func (j *journal) restartedSince(revision int64) bool {
	for i := len(j.records) - 1; i >= 0; i-- {
		switch d := j.records[i]; {
		case d.Kind == store.KindAdopt || d.Kind == store.KindReconcile || d.Kind == store.KindDrift:
			return true
		case d.Revision > 0 && d.Revision < revision:
			return false
		}
	}
	return false
}

// incumbent that the records add up to: every record but one of something tried
// or suggested names the incumbent after it.
func (j *journal) incumbent() store.Params {
	for i := len(j.records) - 1; i >= 0; i-- {
		d := j.records[i]
		switch d.Kind {
		case store.KindTrial, store.KindShed, store.KindSuggest, store.KindPropose, store.KindApprove, store.KindReject:
			continue
		}
		return d.To
	}
	return store.Params{}
}

// approved tells that someone has allowed the latest proposal, and that it is p.
func (j *journal) approved(p store.Params) bool {
	for i := len(j.records) - 1; i >= 0; i-- {
		switch d := j.records[i]; d.Kind {
		case store.KindApprove:
			return d.To == p
		case store.KindPropose:
			return false
		}
	}
	return false
}
