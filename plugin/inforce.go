package plugin

import (
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Source says where the parameters in force come from.
type Source string

// Sources.
const (
	// SourceConfig: no valid document was seen yet; static configuration rules.
	SourceConfig Source = "config"
	// SourceStore: the last valid document rules.
	SourceStore Source = "store"
	// SourceExpired: the last valid document rules, but its trial was dropped by
	// the clock, and its baseline runs everywhere.
	SourceExpired Source = "expired"
)

// InForce is what the policy runs at one moment.
type InForce struct {
	Source Source
	// Revision of the document in force; 0 for static configuration.
	Revision int64
	// UpdatedAt is when that document was written, Age how long ago; zero for
	// static configuration.
	UpdatedAt time.Time
	Age       time.Duration
	// Baseline as run, after clamping; BaselineClamped says that the document
	// had it out of bounds.
	Baseline        store.Params
	BaselineClamped bool
	// Trial is the one in force; nil if there is none or it is over.
	Trial *TrialInForce
}

// TrialInForce is a candidate that is running.
type TrialInForce struct {
	ID string
	// Candidate as run, after clamping; Clamped says that the document had it
	// out of bounds.
	Candidate  store.Params
	Clamped    bool
	Assignment store.Assignment
	// ExpiresAt is when this policy drops it.
	ExpiresAt time.Time
}

// Arms of a comparison, as indexes.
const (
	baseline = iota
	candidate

	arms = iota
)

var armNames = [arms]store.Arm{baseline: store.ArmBaseline, candidate: store.ArmCandidate}

func armIndex(a store.Arm) int {
	if a == store.ArmCandidate {
		return candidate
	}
	return baseline
}

// snapshot is an immutable set of parameters, ready for the hot path.
type snapshot struct {
	doc       *store.Document // nil for static configuration
	revision  int64
	params    [arms]store.Params
	clamped   [arms]bool
	expiresAt time.Time // of the trial
	deadline  int64     // the same since the policy's epoch; never without trial
}

func staticSnapshot(p store.Params) *snapshot {
	return &snapshot{params: [arms]store.Params{p, p}, deadline: never}
}

// compile clamps a valid document to bounds, and brings its trial's end forward
// to maxAge after it was written or, if the writer's clock is ahead, after now.
// elapsed is now since the policy's epoch.
func compile(doc *store.Document, bounds store.Bounds, maxAge time.Duration, now time.Time, elapsed int64) *snapshot {
	s := &snapshot{doc: doc.Clone(), revision: doc.Revision, deadline: never}
	s.params[baseline], s.clamped[baseline] = clamp(bounds, doc.Baseline)
	s.params[candidate] = s.params[baseline]
	if t := doc.Trial; t != nil {
		s.params[candidate], s.clamped[candidate] = clamp(bounds, t.Candidate)
		s.expiresAt = earlier(t.ExpiresAt, earlier(doc.UpdatedAt, now).Add(maxAge))
		s.deadline = elapsed + int64(max(s.expiresAt.Sub(now), 0))
	}
	return s
}

func clamp(bounds store.Bounds, p store.Params) (store.Params, bool) {
	p, moved := bounds.Clamp(p)
	if p.MaxWaitingRequests > maxGateLimit {
		p.MaxWaitingRequests, moved = maxGateLimit, true
	}
	return p, moved
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// arm is the arm that an endpoint runs at now, as its index.
func (s *snapshot) arm(e *endpoint, name string, now int64) int {
	if now >= s.deadline || name == "" {
		return baseline
	}
	if e == nil {
		return s.draw(name)
	}
	return e.arm(s, name)
}

func (s *snapshot) draw(name string) int {
	if s.doc.Trial.Covers(name) {
		return candidate
	}
	return baseline
}

func (s *snapshot) source(now int64) Source {
	switch {
	case s.doc == nil:
		return SourceConfig
	case s.doc.Trial != nil && now >= s.deadline:
		return SourceExpired
	default:
		return SourceStore
	}
}

func (s *snapshot) describe(now time.Time, elapsed int64) InForce {
	f := InForce{
		Source:          s.source(elapsed),
		Revision:        s.revision,
		Baseline:        s.params[baseline],
		BaselineClamped: s.clamped[baseline],
	}
	if s.doc == nil {
		return f
	}
	f.UpdatedAt, f.Age = s.doc.UpdatedAt, now.Sub(s.doc.UpdatedAt)
	if elapsed < s.deadline {
		f.Trial = &TrialInForce{
			ID:         s.doc.Trial.ID,
			Candidate:  s.params[candidate],
			Clamped:    s.clamped[candidate],
			Assignment: s.doc.Trial.Assignment,
			ExpiresAt:  s.expiresAt,
		}
	}
	return f
}
