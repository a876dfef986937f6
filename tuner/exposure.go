package tuner

import (
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// exposureWindow is the stretch over which the time that candidates run is
// bounded.
const exposureWindow = 4 * time.Hour

// exposure remembers when candidates were in force.
type exposure []stretch

type stretch struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// add a stretch of a candidate in force, and forget what is long past.
func (e exposure) add(from, to time.Time) exposure {
	for len(e) > 0 && to.Sub(e[0].To) > exposureWindow {
		e = e[1:]
	}
	return append(e, stretch{from, to})
}

// share of the exposure window before now in which candidates were in force.
func (e exposure) share(now time.Time) float64 {
	oldest := now.Add(-exposureWindow)
	var sum time.Duration
	for _, s := range e {
		from := s.From
		if from.Before(oldest) {
			from = oldest
		}
		sum += max(0, s.To.Sub(from))
	}
	return sum.Seconds() / exposureWindow.Seconds()
}

// earlier moves every stretch back, as the clock has gone.
func (e exposure) earlier(by time.Duration) exposure {
	out := make(exposure, len(e))
	for i, s := range e {
		out[i] = stretch{s.From.Add(-by), s.To.Add(-by)}
	}
	return out
}

// until brings stretches that a checkpoint dates in the future back to now: the
// clock has gone back since.
func (e exposure) until(now time.Time) exposure {
	if n := len(e); n > 0 && e[n-1].To.After(now) {
		return e.earlier(e[n-1].To.Sub(now))
	}
	return e
}

// late adds what a candidate ran on after the decision to end its block, until the
// next document was written or it expired.
func (e exposure) late(decided time.Time, was, is *store.Document, now time.Time) exposure {
	ran := func(d *store.Document) bool { return d.Trial != nil && d.Trial.Assignment.Mode != store.AssignNone }
	if !ran(was) || ran(is) {
		return e
	}
	if to := sooner(was.Trial.ExpiresAt, now); decided.Before(to) {
		return e.add(decided, to)
	}
	return e
}

// ended adds the candidate that was in force when the checkpoint was saved, if the
// document has gone on since: how that came to be was not saved.
func (e exposure) ended(candidate *stretch, d *store.Document, now time.Time) exposure {
	if candidate == nil || !candidate.From.Before(d.UpdatedAt) {
		return e
	}
	to := sooner(candidate.To, sooner(d.UpdatedAt, now))
	if !candidate.From.Before(to) {
		return e
	}
	return e.add(candidate.From, to)
}

// left adds the candidate that an earlier tuner left in force.
func (e exposure) left(d *store.Document, now time.Time) exposure {
	t := d.Trial
	if t == nil || t.Assignment.Mode == store.AssignNone || !d.UpdatedAt.Before(now) {
		return e
	}
	return e.add(d.UpdatedAt, sooner(t.ExpiresAt, now))
}
