package store

import (
	"slices"
	"time"
)

// APIVersion names the schema of Document.
const APIVersion = "kvtuner/v1alpha1"

// MaxLease is how long a candidate can stay in force after the last write of
// its document.
const MaxLease = time.Hour

// Document is what the tuner publishes for one pool and the plugin obeys.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Pool       string `json:"pool"`
	// Revision grows by one with every write; compare-and-swap is on it.
	Revision  int64     `json:"revision"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Baseline are the incumbent's parameters. They never expire.
	Baseline Params `json:"baseline"`
	// Trial is the candidate being tried, if any.
	Trial *Trial `json:"trial,omitempty"`
	// Costs are what Params with LoadPolicy Adaptive weigh each request by, if
	// any.
	Costs *Costs `json:"costs,omitempty"`
}

// Trial is a candidate in force for a bounded time on a stated share of a pool.
type Trial struct {
	ID         string     `json:"id"`
	Candidate  Params     `json:"candidate"`
	Assignment Assignment `json:"assignment"`
	StartedAt  time.Time  `json:"startedAt"`
	// ExpiresAt is when every reader drops the candidate by itself, so that a
	// tuner that dies mid-trial cannot leave it running. It is after StartedAt
	// and at most MaxLease after Document.UpdatedAt: a longer trial is renewed
	// with each write.
	ExpiresAt time.Time `json:"expiresAt"`
}

// AssignmentMode says which endpoints run a trial's candidate.
type AssignmentMode string

const (
	// AssignNone runs the baseline everywhere: the incumbent's block of a
	// switchback trial.
	AssignNone AssignmentMode = "none"
	// AssignAll runs the candidate on every endpoint: its block of a
	// switchback trial.
	AssignAll AssignmentMode = "all"
	// AssignSubset runs it on the endpoints whose seeded hash falls below
	// Share.
	AssignSubset AssignmentMode = "subset"
)

// Assignment maps endpoints to arms.
type Assignment struct {
	Mode AssignmentMode `json:"mode"`
	// Share of the endpoints, 0 < Share < 1; AssignSubset only.
	Share float64 `json:"share,omitempty"`
	// Seed of the hash that picks them; AssignSubset only.
	Seed uint64 `json:"seed,omitempty"`
	// Swapped gives the candidate to the complement of the subset, so that two
	// blocks can exchange halves; AssignSubset only.
	Swapped bool `json:"swapped,omitempty"`
}

// Arm is one side of a comparison.
type Arm string

const (
	// ArmBaseline runs Document.Baseline, the incumbent.
	ArmBaseline Arm = "baseline"
	// ArmCandidate runs Trial.Candidate.
	ArmCandidate Arm = "candidate"
)

// Equal tells that both say the same; times are compared as instants.
func (d *Document) Equal(other *Document) bool {
	if d == nil || other == nil {
		return d == other
	}
	return d.APIVersion == other.APIVersion && d.Pool == other.Pool && d.Revision == other.Revision &&
		d.UpdatedAt.Equal(other.UpdatedAt) && d.Baseline == other.Baseline && d.Trial.equal(other.Trial) && d.Costs.equal(other.Costs)
}

func (t *Trial) equal(other *Trial) bool {
	if t == nil || other == nil {
		return t == other
	}
	return t.ID == other.ID && t.Candidate == other.Candidate && t.Assignment == other.Assignment &&
		t.StartedAt.Equal(other.StartedAt) && t.ExpiresAt.Equal(other.ExpiresAt)
}

// Clone returns a copy that shares nothing with d; nil of nil.
func (d *Document) Clone() *Document {
	if d == nil {
		return nil
	}
	c := *d
	if d.Trial != nil {
		trial := *d.Trial
		c.Trial = &trial
	}
	if d.Costs != nil {
		costs := *d.Costs
		costs.Restores = slices.Clone(costs.Restores)
		c.Costs = &costs
	}
	return &c
}
