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

// CostsState says what is known of the costs that store.Adaptive goes by.
type CostsState string

// States of costs.
const (
	// CostsNone: the document in force has none.
	CostsNone CostsState = "none"
	// CostsFresh: requests of adaptive parameters are weighed by them.
	CostsFresh CostsState = "fresh"
	// CostsExpired: they were dropped by the clock, and the thresholds alone
	// decide.
	CostsExpired CostsState = "expired"
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
	// Costs are those that adaptive parameters go by, CostsAge how long ago the
	// window ended that they were fitted to.
	Costs    CostsState
	CostsAge time.Duration
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
	draws     uint64 // tells the draws of one snapshot from those of another: a revision may come again with another trial
	params    [arms]store.Params
	clamped   [arms]bool
	expiresAt time.Time // of the trial
	deadline  int64     // the same since the policy's epoch; never without trial
	rule      *rule     // nil without costs
}

func staticSnapshot(p store.Params) *snapshot {
	return &snapshot{params: [arms]store.Params{p, p}, deadline: never}
}

// compile clamps a valid document to limits, and brings the end of its trial and
// of its costs forward to the maximum age after it was written or, if the
// writer's clock is ahead, after now. elapsed is now since the policy's epoch.
func compile(doc *store.Document, l limits, now time.Time, elapsed int64) *snapshot {
	s := &snapshot{doc: doc.Clone(), revision: doc.Revision, deadline: never}
	s.params[baseline], s.clamped[baseline] = l.clamp(doc.Baseline)
	s.params[candidate] = s.params[baseline]
	latest := earlier(doc.UpdatedAt, now).Add(l.maxAge)
	if t := doc.Trial; t != nil {
		s.params[candidate], s.clamped[candidate] = l.clamp(t.Candidate)
		s.expiresAt = earlier(t.ExpiresAt, latest)
		s.deadline = elapsed + int64(max(s.expiresAt.Sub(now), 0))
	}
	if c := doc.Costs; c != nil {
		s.rule = newRule(c, elapsed+int64(max(earlier(c.ExpiresAt, latest).Sub(now), 0)))
	}
	return s
}

func (l limits) clamp(p store.Params) (store.Params, bool) {
	p, moved := l.bounds.Clamp(p)
	if p.LoadPolicy == store.Adaptive && !l.adaptive {
		p.LoadPolicy, moved = store.Threshold, true
	}
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
		Costs:           CostsNone,
	}
	if s.doc == nil {
		return f
	}
	f.UpdatedAt, f.Age = s.doc.UpdatedAt, now.Sub(s.doc.UpdatedAt)
	if s.rule != nil {
		f.Costs, f.CostsAge = CostsFresh, now.Sub(s.doc.Costs.FittedAt)
		if elapsed >= s.rule.until {
			f.Costs = CostsExpired
		}
	}
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
