package tuner

import (
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// ReplayReport is what a Replay saw and what it makes of it.
type ReplayReport struct {
	Pool        string    `json:"pool"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds float64   `json:"step_seconds"`
	// Measured is what was in Prometheus.
	Measured ReplayMeasured `json:"measured"`
	// Predicted is the cost curves' word: no trial has confirmed it.
	Predicted ReplayPredicted `json:"predicted"`
	// Decisions are those of the loop in mode observe, without their samples.
	Decisions []store.Decision `json:"decisions"`
	Steps     []ReplayStep     `json:"steps"`
}

// ReplayMeasured sums what was seen.
type ReplayMeasured struct {
	// Steps by state of their sample; InTrial those in which somebody tried a
	// candidate, Collapsing those that showed a collapse.
	OK         int `json:"ok"`
	Idle       int `json:"idle"`
	Unknown    int `json:"unknown"`
	InTrial    int `json:"in_trial"`
	Collapsing int `json:"collapsing"`
	// Requests completed and their end-to-end seconds; Cost is the objective of
	// all of them, in seconds a request, 0 if it is not known.
	Requests   float64 `json:"requests"`
	E2ESeconds float64 `json:"e2e_seconds"`
	Cost       float64 `json:"cost_seconds"`
}

// ReplayPredicted is what the cost curves say of other token minimums, relative to
// what was in force step by step. Queue limits are not predicted.
type ReplayPredicted struct {
	// Steps that had curves, and the end-to-end seconds of their requests.
	Steps      int     `json:"steps"`
	E2ESeconds float64 `json:"e2e_seconds"`
	// Suggested is what the suggestions would have gained, had each been in force
	// from its next step on until the next one; SuggestedSteps are those in which
	// one was, NotPredicted those of them with another queue limit.
	Suggested      ReplayGain `json:"suggested"`
	SuggestedSteps int        `json:"suggested_steps"`
	NotPredicted   int        `json:"not_predicted_steps"`
	// Minimums are what each rung of the ladder would have gained all along.
	Minimums []ReplayGain `json:"minimums"`
}

// ReplayGain is a predicted saving of end-to-end seconds; negative is a loss. Low
// and High are 1.96 standard errors away, the curves' own error included, which is
// taken to be the same one in all steps.
type ReplayGain struct {
	Minimum store.Tokens `json:"minimum,omitempty"`
	Seconds float64      `json:"seconds"`
	Low     float64      `json:"low"`
	High    float64      `json:"high"`
	// Share of the end-to-end seconds it is about.
	Share float64 `json:"share"`
}

// ReplayStep is one step.
type ReplayStep struct {
	Time  time.Time `json:"time"`
	State State     `json:"state"`
	Why   string    `json:"why,omitempty"`
	// Params were in force, or InTrial: then the baseline.
	Params   store.Params `json:"params"`
	InTrial  bool         `json:"in_trial,omitempty"`
	Revision int64        `json:"revision"`
	// Cost is measured, in seconds a request; 0 is not known.
	Cost float64 `json:"cost_seconds,omitempty"`
	// Crossover is fitted; nil if there were no curves.
	Crossover *Crossover `json:"crossover,omitempty"`
}

// Crossover is the number of reusable tokens from which on a restore costs less
// than a recompute, as a lower end of the plugin's buckets; never if it nowhere
// does. From Low on it may, from High on it surely does (1.96 standard errors).
type Crossover struct {
	Tokens store.Tokens `json:"tokens"`
	Low    store.Tokens `json:"low"`
	High   store.Tokens `json:"high"`
}

// confidenceWidth is the number of standard errors in a 95% interval.
const confidenceWidth = 1.96

func (c curves) crossover() *Crossover {
	return &Crossover{Tokens: c.paysFrom(0), Low: c.paysFrom(confidenceWidth), High: c.paysFrom(-confidenceWidth)}
}

// paysFrom is the lowest bucket from which on all known ones gain by restoring, if
// the gain is larger than estimated by so many standard errors.
func (c curves) paysFrom(errs float64) store.Tokens {
	from := store.Never
	for i := len(c.buckets) - 1; i >= 0; i-- {
		b := c.buckets[i]
		if !b.known {
			continue
		}
		if b.recompute-b.restore+errs*b.stderr <= 0 {
			break
		}
		from = max(1, store.Tokens(b.reusable))
	}
	return from
}

// replaySums adds predictions up.
type replaySums struct {
	minimums  []ReplayGain
	suggested *store.Params
	measured  Signals
}

func newReplaySums(rungs []store.Tokens) replaySums {
	var s replaySums
	for _, t := range rungs {
		s.minimums = append(s.minimums, ReplayGain{Minimum: t})
	}
	return s
}

// add a prediction for requests that spent so many seconds.
func (g *ReplayGain) add(p prediction, spent float64) {
	half := confidenceWidth * math.Sqrt(p.prior().variance)
	if !p.changes {
		half = 0
	}
	g.Seconds += p.gain * spent
	g.Low += (p.gain - half) * spent
	g.High += (p.gain + half) * spent
}

// measure a step, and predict what others would have made of it.
func (p *replaying) measure(s Sample, d *store.Decision) {
	step := ReplayStep{Time: s.To.UTC(), State: s.State, Why: s.why(), Params: p.past.params, InTrial: p.past.trial, Revision: p.past.revision}
	p.count(s)
	if cost, ok := p.settings.Objective.Cost(s.Signals); ok && s.State == OK {
		step.Cost = cost
	}
	if m, ok := fitCurves(p.control.log, s.To, p.settings.Search); ok && s.State == OK && s.Plugin.State == OK {
		step.Crossover = m.crossover()
		p.predict(m, s)
	}
	p.out.Steps = append(p.out.Steps, step)
	if d == nil {
		return
	}
	d.ID = store.NewID(s.To, uint64(len(p.out.Decisions)+1))
	if d.Evidence != nil {
		d.Evidence.Samples = nil
	}
	p.out.Decisions = append(p.out.Decisions, *d)
	if d.Kind == store.KindSuggest {
		to := d.To
		p.sums.suggested = &to
	}
}

func (p *replaying) count(s Sample) {
	m := &p.out.Measured
	switch s.State {
	case OK:
		m.OK++
		p.sums.measured = p.sums.measured.plus(s.Signals)
		if p.settings.Guard.collapsed(s) {
			m.Collapsing++
		}
	case Idle:
		m.Idle++
	default:
		m.Unknown++
	}
	if p.past.trial {
		m.InTrial++
	}
}

// predict is silent about a trial of the past: what was in force then is not one
// pair of parameters.
func (p *replaying) predict(m curves, s Sample) {
	if p.past.trial {
		return
	}
	out, spent, from := &p.out.Predicted, s.Signals.E2ESeconds, p.past.params
	out.Steps++
	out.E2ESeconds += spent
	for i := range p.sums.minimums {
		g := &p.sums.minimums[i]
		at := from
		at.MinExternalReusableTokens = g.Minimum
		g.add(m.predict(from, at), spent)
	}
	to := p.sums.suggested
	if to == nil {
		return
	}
	out.SuggestedSteps++
	if to.MaxWaitingRequests != p.past.params.MaxWaitingRequests {
		out.NotPredicted++
	}
	at := from
	at.MinExternalReusableTokens = to.MinExternalReusableTokens
	out.Suggested.add(m.predict(from, at), spent)
}

func (p *replaying) report() ReplayReport {
	out := p.out
	out.Measured.Requests, out.Measured.E2ESeconds = p.sums.measured.Requests, p.sums.measured.E2ESeconds
	if cost, ok := p.settings.Objective.Cost(p.sums.measured); ok {
		out.Measured.Cost = cost
	}
	out.Predicted.Minimums = p.sums.minimums
	if spent := out.Predicted.E2ESeconds; spent > 0 {
		out.Predicted.Suggested.Share = out.Predicted.Suggested.Seconds / spent
		for i := range out.Predicted.Minimums {
			out.Predicted.Minimums[i].Share = out.Predicted.Minimums[i].Seconds / spent
		}
	}
	if out.Decisions == nil {
		out.Decisions = []store.Decision{}
	}
	return out
}
