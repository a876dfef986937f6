package tuner

import (
	"errors"
	"fmt"
	"time"
	"unicode"

	"github.com/kvtuner/kvtuner/store"
)

// Verb is what an operator can tell a pool to do.
type Verb string

const (
	// Pause keeps the incumbent as it is; a trial is withdrawn at once, and
	// nothing is proposed, shed or rolled back until the pause ends.
	Pause Verb = "pause"
	// Resume ends a pause.
	Resume Verb = "resume"
	// Revert makes earlier parameters the incumbent, within bounds.
	Revert Verb = "revert"
	// Approve lets a proposal be tried, Reject refuses it; in mode Propose.
	Approve Verb = "approve"
	Reject  Verb = "reject"
)

// Verbs returns every verb.
func Verbs() []Verb { return []Verb{Pause, Resume, Revert, Approve, Reject} }

// Target is where a Revert leads.
type Target string

const (
	// ToKnownGood is the incumbent before the last move that stands.
	ToKnownGood Target = "known-good"
	// ToInitial are the configured initial parameters.
	ToInitial Target = "initial"
	// ToRecord is what a decision of the history left in force.
	ToRecord Target = "record"
)

// Command is one order of an operator.
type Command struct {
	Verb Verb
	// Actor is who gives it, Reason why; both end up in its record. A reason is
	// optional.
	Actor  string
	Reason string
	// For is how long a Pause lasts: 0 until a Resume, or 1m to 8760h.
	For time.Duration
	// Target of a Revert. For ToRecord, Record is the decision gone back to and
	// Params what it left in force.
	Target Target
	Record string
	Params store.Params
	// Proposal that an Approve or Reject is about, by its ID.
	Proposal string
}

// Limits of what operators write.
const (
	MaxActor  = 100 // bytes
	MaxReason = 500 // bytes
	minPause  = time.Minute
	maxPause  = 365 * 24 * time.Hour
)

// ErrRefused means that a pool's state or mode does not allow a command. The
// error says why, and what would help.
var ErrRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// Validate reports what no pool would accept; errors wrap store.ErrInvalid and
// name the field.
func (c Command) Validate() error {
	switch {
	case c.Verb != Pause && c.Verb != Resume && c.Verb != Revert && c.Verb != Approve && c.Verb != Reject:
		return wrong("verb", string(c.Verb), fmt.Sprint(Verbs()))
	case c.Actor == "" || len(c.Actor) > MaxActor || !printable(c.Actor):
		return wrong("by", c.Actor, fmt.Sprintf("a name of 1 to %d bytes without control characters", MaxActor))
	case len(c.Reason) > MaxReason || !printable(c.Reason):
		return wrong("reason", c.Reason, fmt.Sprintf("at most %d bytes without control characters", MaxReason))
	case c.For != 0 && (c.Verb != Pause || c.For < minPause || c.For > maxPause):
		return wrong("for", c.For.String(), "1m to 365d, of a pause")
	case c.Verb == Revert && c.Target != ToKnownGood && c.Target != ToInitial && c.Target != ToRecord:
		return wrong("to", string(c.Target), "known-good, initial, or the ID of a decision")
	case (c.Verb == Approve || c.Verb == Reject) && c.Proposal == "":
		return wrong("proposal", "", "the ID of the proposal that waits")
	case c.Target == ToRecord:
		return c.Params.Validate()
	}
	return nil
}

func wrong(field, value, allowed string) error {
	if len(value) > 80 {
		value = value[:80] + "..."
	}
	return &store.FieldError{Field: field, Value: fmt.Sprintf("%q", value), Allowed: allowed}
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return false
		}
	}
	return true
}

// because adds the operator's reason to a sentence.
func (c Command) because() string {
	if c.Reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", c.Reason)
}

// LeftInForce is what a decision left in force: what it only tried or suggested
// was not the incumbent.
func LeftInForce(d store.Decision) store.Params {
	switch d.Kind {
	case store.KindSuggest, store.KindPropose, store.KindApprove, store.KindReject, store.KindTrial, store.KindShed:
		return d.From
	}
	return d.To
}
