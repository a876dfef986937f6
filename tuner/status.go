package tuner

import (
	"context"
	"slices"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
)

// Status is what an operator sees of a pool.
type Status struct {
	Pool string    `json:"pool"`
	Mode Mode      `json:"mode"`
	At   time.Time `json:"at"`
	// Ready is false until the pool has been taken over and while steps fail.
	Ready bool `json:"ready"`
	// Doing says in a few words what the loop is at.
	Doing string `json:"doing"`
	Error string `json:"error,omitempty"`
	// Incumbent is nil until the pool has been taken over.
	Incumbent *store.Params `json:"incumbent,omitempty"`
	Revision  int64         `json:"revision"`
	Trial     *TrialStatus  `json:"trial,omitempty"`
	// Paused is the operator's pause in force, Proposal what waits for an answer.
	Paused   *PauseStatus    `json:"paused,omitempty"`
	Proposal *ProposalStatus `json:"proposal,omitempty"`
	// KnownGood is where a revert leads; nil if nothing else was in force yet.
	KnownGood *store.Params `json:"knownGood,omitempty"`
	// Recent summarises the incumbent's samples since it settled.
	Recent    map[string]float64 `json:"recent,omitempty"`
	LastState State              `json:"lastState,omitempty"`
	LastWhy   string             `json:"lastWhy,omitempty"`
	Decisions []store.Decision   `json:"decisions,omitempty"`
	// Preflight lists what the last look at the set-up found amiss.
	Preflight []Finding `json:"preflight,omitempty"`
}

// NotReady says why the pool is not being tuned; empty if it is. A pool that lacks
// data of its engines or of the plugin is not, whatever else goes well.
func (s Status) NotReady() string {
	switch {
	case s.Error != "":
		return s.Error
	case !s.Ready && s.Doing == "":
		return "waiting for the first step"
	case !s.Ready:
		return s.Doing
	case s.LastWhy != "":
		return "data is missing: " + s.LastWhy
	}
	return ""
}

// TrialStatus is a trial in progress.
type TrialStatus struct {
	ID        string       `json:"id"`
	Candidate store.Params `json:"candidate"`
	Why       string       `json:"why"`
	Arm       store.Arm    `json:"arm"`
	Blocks    int          `json:"blocks"`
	// MaxBlocks of the candidate end it undecided.
	MaxBlocks int                `json:"maxBlocks"`
	Started   time.Time          `json:"started"`
	Effect    *store.Interval    `json:"effect,omitempty"`
	Arms      []store.ArmSummary `json:"arms,omitempty"`
}

// ProposalStatus is a candidate that waits for an approval, or, approved, for its
// trial to begin.
type ProposalStatus struct {
	ID        string       `json:"id"`
	Candidate store.Params `json:"candidate"`
	Why       string       `json:"why"`
	Until     time.Time    `json:"until"`
	Approved  string       `json:"approvedBy,omitempty"`
}

// statusDecisions is how many decisions a status shows, without their samples.
const statusDecisions = 10

// Status may be called from any goroutine.
func (t *Tuner) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Decisions = slices.Clone(s.Decisions)
	return s
}

func (t *Tuner) remember(d *store.Decision) {
	brief := *d
	brief.Evidence = nil
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Decisions = append([]store.Decision{brief}, t.status.Decisions[:min(len(t.status.Decisions), statusDecisions-1)]...)
}

func (t *Tuner) report(now time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.status
	s.At, s.Ready, s.Error = now, err == nil && t.control != nil, ""
	if err != nil {
		s.Error = err.Error()
	}
	if t.control == nil {
		s.Doing = "waiting to take over the pool"
		return
	}
	c := t.control
	t.metrics.ready.Set(0)
	if s.Ready && c.blindness(c.lastSample) == "" {
		t.metrics.ready.Set(1)
	}
	incumbent := c.incumbent
	s.Doing, s.Incumbent, s.Revision = c.doing(now), &incumbent, t.document.Revision
	s.LastState, s.LastWhy = c.lastSample.State, c.blindness(c.lastSample)
	s.Trial, s.Recent = nil, nil
	c.orders.report(s, c.probation)
	t.metrics.pause(c.orders.Pause)
	if len(c.history) > 0 {
		s.Recent = total(c.history).named(t.o.Settings.Objective)
	}
	if c.trial != nil {
		_, effect := c.trial.look(t.o.Settings.Trial, c.logCosts(c.history))
		s.Trial = &TrialStatus{
			ID: c.trial.id, Candidate: c.trial.proposal.params, Why: c.trial.proposal.why,
			Arm: c.trial.arm(), Blocks: c.trial.candidateBlocks(), MaxBlocks: t.o.Settings.Trial.MaxBlocks,
			Started: c.trial.started, Effect: effect,
			Arms: c.trial.evidence(undecided, effect, c.incumbent, t.o.Settings.Objective, nil).Arms,
		}
	}
}

// doing says what the loop is at.
func (c *controller) doing(now time.Time) string {
	switch {
	case c.trial != nil && c.trial.acked.IsZero():
		return "trial: waiting until every EPP replica has the block in force"
	case c.trial != nil:
		return "trial: comparing " + c.trial.proposal.params.String() + " with " + c.incumbent.String()
	case c.orders.Pause != nil:
		return c.orders.Pause.String()
	case c.unknown > 0:
		return "holding: nothing is decided without data"
	case c.settled.IsZero():
		return "waiting until every EPP replica has the parameters in force"
	case now.Before(c.settled):
		return "settling: samples are judged from " + c.settled.UTC().Format(time.TimeOnly) + " UTC on"
	case now.Before(c.cooldown):
		return "cooling down"
	case c.orders.offer != nil && c.orders.offer.approved == "":
		return "waiting for an approval to try " + c.orders.offer.proposal.params.String()
	case c.orders.offer != nil:
		return "waiting to start the approved trial of " + c.orders.offer.proposal.params.String()
	case c.climber.Resting:
		return "resting: nothing promises an improvement"
	}
	return "watching the incumbent"
}

// why a sample is not usable: its own reason, or the plugin's.
func (s Sample) why() string {
	if s.Why != "" {
		return s.Why
	}
	return s.Plugin.Why
}

// timed bounds each query.
type timed struct {
	Prometheus
	limit time.Duration
}

func (p timed) Query(ctx context.Context, q string, at time.Time, opts ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	return p.Prometheus.Query(ctx, q, at, opts...)
}
