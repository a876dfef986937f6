package report

import (
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Decided is a decision at a moment of the run.
type Decided struct {
	// N counts from 1.
	N  int
	At time.Duration
	store.Decision
}

// Clock is the moment as h:mm:ss.
func (d Decided) Clock() string { return Clock(d.At) }

// Change shows what the decision did to the thresholds, or which candidate it
// was about.
func (d Decided) Change() string {
	if d.From == d.To || d.From == (store.Params{}) {
		return d.To.String() + " stays"
	}
	if d.Kind == store.KindTrial {
		return d.From.String() + " | " + d.To.String()
	}
	return d.From.String() + " → " + d.To.String()
}

// Tone groups the kinds for colours: what changed the thresholds, what was
// tried, what was stopped, and the rest.
func (d Decided) Tone() string {
	switch d.Kind {
	case store.KindMove, store.KindRecover:
		return "move"
	case store.KindTrial:
		return "trial"
	case store.KindAbort, store.KindShed, store.KindRollback:
		return "stop"
	}
	return "note"
}

// Decisions of the tuned run.
func (s Story) Decisions() []Decided {
	all := s.Tuned.Outcome.Decisions
	out := make([]Decided, len(all))
	for i, d := range all {
		out[i] = Decided{N: i + 1, At: d.Time.Sub(s.Tuned.Outcome.Start), Decision: d}
	}
	return out
}
