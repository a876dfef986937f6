package store

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Values of Decision.Mode.
const (
	ModeObserve = "observe"
	ModePropose = "propose"
	ModeEnforce = "enforce"
)

// maxActorBytes bounds the name of who commanded a decision.
const maxActorBytes = 200

// Values of Sample.State.
const (
	StateOK      = "ok"
	StateIdle    = "idle"
	StateUnknown = "unknown"
)

// Kinds returns every kind, in the order a pool usually sees them.
func Kinds() []Kind {
	return []Kind{
		KindAdopt, KindSuggest, KindPropose, KindApprove, KindReject, KindTrial, KindMove, KindKeep, KindAbort,
		KindShed, KindRecover, KindRest, KindWake, KindHold, KindPause, KindResume, KindRevert, KindDrift,
		KindRollback, KindReconcile,
	}
}

// NewID returns an ID such as "20261130T161151Z-0007" for a decision or trial at
// t. IDs sort by second, and within one by sequence up to 9999. The caller makes
// the pair of second and sequence unique within a pool.
func NewID(t time.Time, sequence uint64) string {
	return fmt.Sprintf("%s-%04d", t.UTC().Format("20060102T150405Z"), sequence)
}

// Validate names the first field whose value is refused; errors wrap ErrInvalid.
// Numbers must be finite: what could not be measured is left out.
func (d *Decision) Validate() error {
	if err := validateName("id", d.ID); err != nil {
		return err
	}
	if err := validateName("pool", d.Pool); err != nil {
		return err
	}
	if err := validateTime("time", d.Time); err != nil {
		return err
	}
	if !slices.Contains(Kinds(), d.Kind) {
		return refuse("kind", string(d.Kind), "one of "+join(Kinds()))
	}
	if err := d.validateRevision(); err != nil {
		return err
	}
	if err := d.From.Validate(); err != nil {
		return under("from", err)
	}
	if err := d.To.Validate(); err != nil {
		return under("to", err)
	}
	if strings.TrimSpace(d.Reason) == "" {
		return refuse("reason", d.Reason, "a sentence")
	}
	if len(d.Actor) > maxActorBytes || strings.ContainsFunc(d.Actor, unicode.IsControl) {
		return refuse("actor", d.Actor, fmt.Sprintf("at most %d bytes without control characters", maxActorBytes))
	}
	if d.Evidence == nil {
		return nil
	}
	return under("evidence", d.Evidence.validate())
}

func (d *Decision) validateRevision() error {
	switch {
	case d.Mode != ModeObserve && d.Mode != ModePropose && d.Mode != ModeEnforce:
		return refuse("mode", d.Mode, `"observe", "propose" or "enforce"`)
	case d.Revision < 0:
		return refuse("revision", d.Revision, "0 for no write, or the revision written")
	case d.Mode == ModeObserve && d.Revision != 0:
		return refuse("revision", d.Revision, `0 in mode "observe", which writes nothing`)
	default:
		return nil
	}
}

func (e *Evidence) validate() error {
	if e.Effect != nil {
		if err := e.Effect.validate(); err != nil {
			return under("effect", err)
		}
	}
	for i, arm := range e.Arms {
		if err := arm.validate(); err != nil {
			return under(fmt.Sprintf("arms[%d]", i), err)
		}
	}
	for i, bucket := range e.Curves {
		if err := bucket.validate(); err != nil {
			return under(fmt.Sprintf("curves[%d]", i), err)
		}
	}
	for i, alternative := range e.Alternatives {
		if err := alternative.Params.Validate(); err != nil {
			return under(fmt.Sprintf("alternatives[%d].params", i), err)
		}
	}
	for i, sample := range e.Samples {
		if err := sample.validate(); err != nil {
			return under(fmt.Sprintf("samples[%d]", i), err)
		}
	}
	return nil
}

func (i *Interval) validate() error {
	if err := finite(map[string]float64{"estimate": i.Estimate, "low": i.Low, "high": i.High}); err != nil {
		return err
	}
	switch {
	case i.Low > i.Estimate || i.Estimate > i.High:
		return refuse("estimate", i.Estimate, fmt.Sprintf("a value from low to high, which are %v and %v", i.Low, i.High))
	case !(i.Confidence > 0 && i.Confidence < 1):
		return refuse("confidence", i.Confidence, "a fraction above 0 and below 1")
	case i.N < 0:
		return refuse("n", i.N, "0 or more")
	default:
		return nil
	}
}

func (a ArmSummary) validate() error {
	if err := validateArm(a.Arm); err != nil {
		return err
	}
	if err := a.Params.Validate(); err != nil {
		return under("params", err)
	}
	if a.Samples < 0 {
		return refuse("samples", a.Samples, "0 or more")
	}
	if err := finite(map[string]float64{"requests": a.Requests}); err != nil {
		return err
	}
	return under("signals", finite(a.Signals))
}

func (b CurveBucket) validate() error {
	values := map[string]float64{"reusable": b.Reusable, "tokens": b.Tokens, "requests": b.Requests, "recomputeSeconds": b.RecomputeSeconds}
	if b.RestoreSeconds != nil {
		values["restoreSeconds"] = *b.RestoreSeconds
	}
	if b.StandardError != nil {
		values["standardError"] = *b.StandardError
	}
	return finite(values)
}

func (s Sample) validate() error {
	if err := validateTime("time", s.Time); err != nil {
		return err
	}
	if err := validateArm(s.Arm); err != nil {
		return err
	}
	switch s.State {
	case StateOK, StateIdle, StateUnknown:
	default:
		return refuse("state", s.State, `"ok", "idle" or "unknown"`)
	}
	if s.State != StateOK && len(s.Signals) > 0 {
		return refuse("signals", fmt.Sprintf("%d values", len(s.Signals)), `none in state "`+s.State+`"`)
	}
	return under("signals", finite(s.Signals))
}

func validateArm(arm Arm) error {
	if arm != ArmBaseline && arm != ArmCandidate {
		return refuse("arm", string(arm), `"baseline" or "candidate"`)
	}
	return nil
}

// finite refuses the first value, by name, that JSON cannot hold.
func finite(values map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if v := values[name]; math.IsNaN(v) || math.IsInf(v, 0) {
			return refuse(fieldName(name), v, "a finite number; leave out what is unknown")
		}
	}
	return nil
}

func join(kinds []Kind) string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	return strings.Join(names, ", ")
}
