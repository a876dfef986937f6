package tuner

import (
	"context"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Published costs are fresh evidence or none: the plugin drops them after
// costsLease, and meanwhile they are written again when they have changed
// materially, but not within costsEvery, and in any case before costsRenew.
const (
	costsLease = 10 * time.Minute
	costsRenew = 5 * time.Minute
	costsEvery = 30 * time.Second
)

// refreshCosts publishes what restores and recomputes cost by now, if the document
// has parameters that go by it. The parameters in force stay what they are, so
// that this is no decision, and nothing has to settle. A failure is tried again in
// the next step.
func (t *Tuner) refreshCosts(ctx context.Context, now time.Time) error {
	d := t.document
	if t.o.Settings.Mode == Observe || t.pending != (action{}) || !adaptive(d) || now.Sub(d.UpdatedAt) < costsEvery {
		return nil
	}
	next := d.Clone()
	next.Revision, next.UpdatedAt = d.Revision+1, now.UTC()
	next.Costs = t.costs(next, now)
	if !worthWriting(d.Costs, next.Costs, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := t.write(ctx, next, now); err != nil {
		return err
	}
	t.unsaved = true
	return t.save(ctx)
}

// adaptive tells that an arm of the document goes by its costs.
func adaptive(d *store.Document) bool {
	return d.Baseline.LoadPolicy == store.Adaptive || d.Trial != nil && d.Trial.Candidate.LoadPolicy == store.Adaptive
}

// costs for a document: those of the evidence by now, else what the last document
// had; nil if no arm goes by them or they are over.
func (t *Tuner) costs(next *store.Document, now time.Time) *store.Costs {
	if !adaptive(next) {
		return nil
	}
	if m, ok := fitCurves(t.control.log, now, t.o.Settings.Search); ok {
		return m.publish(t.control.log[len(t.control.log)-1].at, t.o.Settings.Search)
	}
	if c := t.document.Costs; c != nil && now.Before(c.ExpiresAt) {
		return c
	}
	return nil
}

// publish the curves in the plugin's terms.
func (c curves) publish(at time.Time, s Search) *store.Costs {
	out := &store.Costs{
		FittedAt: at.UTC(), ExpiresAt: at.Add(costsLease).UTC(),
		BaseSeconds: shown(c.base), SecondsPerToken: shown(c.slope), Crowding: s.BatchCost,
	}
	for _, b := range c.buckets {
		if !b.known {
			continue
		}
		out.Restores = append(out.Restores, store.RestoreCost{
			Reusable: int(b.reusable), Seconds: shown(b.restore), StandardError: shown(b.stderr), Requests: int(b.requests - b.stopped),
		})
	}
	return out
}

// shown rounds to three significant digits: more is noise, and hard to read.
func shown(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// worthWriting tells that costs have changed materially, or would soon be too old.
func worthWriting(before, after *store.Costs, now time.Time) bool {
	switch {
	case after == nil || before == after:
		return false
	case before == nil || now.Sub(before.FittedAt) >= costsRenew:
		return true
	}
	if len(before.Restores) != len(after.Restores) || differ(before.SecondsPerToken, after.SecondsPerToken) {
		return true
	}
	for i, a := range after.Restores {
		b := before.Restores[i]
		if a.Reusable != b.Reusable || differ(a.Seconds, b.Seconds) && math.Abs(a.Seconds-b.Seconds) > b.StandardError {
			return true
		}
	}
	return false
}

// material is the relative change of a cost that is worth a write.
const material = 0.1

func differ(a, b float64) bool { return math.Abs(a-b) > material*max(a, b) }
