package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Violation is a rule that was broken.
type Violation struct {
	Seed uint64 `json:"seed"`
	// After the schedule began.
	After  string `json:"after"`
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
}

// watch knows the rules, and what it has to remember to check them.
type watch struct {
	w           *world
	violations  []Violation
	stored      []*store.Document // that the store ever held, valid ones
	own         map[string]bool   // trials of tuners, by ID
	known       map[store.Params]bool
	checkpoints [][]byte
	owed        []owed
	replayed    bool // an older document was put back
	exposed     []time.Time
	excused     time.Time // from the exposure rule: until then a tuner may not know
	// pauses that were accepted, by the clock of the tuner that accepted them.
	pauses map[*process]time.Time
	// deposed are tuners in whose place another has signed the ConfigMap.
	deposed  map[string]bool
	activity Activity
}

// Activity counts what happened, so that a campaign shows what it has covered.
type Activity struct {
	Decisions map[store.Kind]int `json:"decisions"`
	Faults    map[Kind]int       `json:"faults"`
	Writes    int                `json:"writes"`
	Steps     int                `json:"steps"`
	Failed    int                `json:"failed_steps"`
	Requests  int                `json:"requests"`
	// VirtualHours lived through.
	VirtualHours float64 `json:"virtual_hours"`
}

// owed is a change that may be recorded after it was published: the end of a
// candidate.
type owed struct {
	by       *process
	revision int64
}

func newWatch(w *world) *watch {
	return &watch{w: w, own: map[string]bool{}, known: map[store.Params]bool{}, pauses: map[*process]time.Time{}, deposed: map[string]bool{}, activity: newActivity()}
}

func newActivity() Activity {
	return Activity{Decisions: map[store.Kind]int{}, Faults: map[Kind]int{}}
}

// violate notes a broken rule, once a schedule.
func (v *watch) violate(rule, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	v.w.trace("VIOLATION %s: %s", rule, detail)
	for _, other := range v.violations {
		if other.Rule == rule {
			return
		}
	}
	v.violations = append(v.violations, Violation{
		Seed: v.w.plan.seed, After: v.w.now.Sub(v.w.plan.start).String(), Rule: rule, Detail: detail,
	})
}

func (v *watch) struck(f fault) { v.activity.Faults[f.kind]++ }

// jumped excuses a tuner whose clock went forward, or either way while it was
// down: it cannot tell that from time.
func (v *watch) jumped(p *process, by time.Duration) {
	if by > 0 || p.tuner == nil {
		v.excused = v.w.now.Add(exposureWindow)
		return
	}
	if until, paused := v.pauses[p]; paused { // which lasts no longer than was meant
		v.pauses[p] = until.Add(by)
	}
}

// forgetful excuses tuners from knowing what candidates ran before, and what they
// were told.
func (v *watch) forgetful() {
	v.excused = v.w.now.Add(exposureWindow)
	clear(v.pauses)
}

func (v *watch) keep(d *store.Document) {
	v.stored = append(v.stored, d.Clone())
	v.known[d.Baseline] = true
	if d.Trial != nil {
		v.known[d.Trial.Candidate] = true
	}
}

func (v *watch) foreign(d *store.Document) { v.keep(d) }

// published checks a tuner's write.
func (v *watch) published(p *process, before, next *store.Document) {
	v.activity.Writes++
	v.keep(next)
	s := v.w.plan.settings
	if s.Mode == tuner.Observe {
		v.violate("observe mode publishes nothing", "revision %d: %s", next.Revision, describe(next))
	}
	if !s.Bounds.Contains(next.Baseline) || next.Trial != nil && !s.Bounds.Contains(next.Trial.Candidate) {
		v.violate("parameters stay in bounds", "revision %d: %s", next.Revision, describe(next))
	}
	removed := before == nil
	if removed && len(v.stored) > 1 {
		before = v.stored[len(v.stored)-2] // what its readers have
	}
	moved := before == nil || before.Baseline != next.Baseline
	if removed && next.Trial == nil && len(p.journal.records) > 0 && p.journal.incumbent() == next.Baseline {
		moved = false // written again as this tuner knew it, whatever was there last
	}
	ended := before != nil && (before.Trial != nil || removed) && next.Trial == nil
	if moved {
		v.moved(p, before, next)
	} else if ended {
		v.owed = append(v.owed, owed{p, next.Revision})
		v.settle(p)
	}
	if next.Trial != nil {
		v.trial(p, before, next)
	}
	if p.spoiled && (moved || next.Trial != nil) {
		v.violate("missing data never moves a parameter", "revision %d: %s", next.Revision, describe(next))
	}
}

// moved checks a change of the incumbent.
func (v *watch) moved(p *process, before, next *store.Document) {
	d := p.journal.of(next.Revision)
	switch {
	case d == nil:
		v.violate("every change is recorded first", "revision %d: %s has no record", next.Revision, describe(next))
		return
	case d.To != next.Baseline:
		v.violate("records say what was done", "record %s is of %s, revision %d has %s", d.ID, d.To, next.Revision, next.Baseline)
	}
	switch d.Kind {
	case store.KindMove, store.KindRecover:
		if before == nil || before.Trial == nil || before.Trial.Candidate != next.Baseline {
			v.violate("only what was tried becomes the incumbent", "revision %d: %s", next.Revision, describe(next))
		}
	case store.KindAdopt, store.KindReconcile, store.KindDrift, store.KindRollback, store.KindRevert:
	default:
		if p.journal.clamped(next.Baseline) {
			return
		}
		v.violate("records say what was done", "record %s of kind %s moved the incumbent to %s", d.ID, d.Kind, next.Baseline)
	}
}

// trial checks a write that has one.
func (v *watch) trial(p *process, before, next *store.Document) {
	t, s := next.Trial, v.w.plan.settings
	if t.Assignment.Mode != store.AssignAll && t.Assignment.Mode != store.AssignNone {
		v.violate("candidates run where they may", "revision %d: %s", next.Revision, describe(next))
	}
	if lease := t.ExpiresAt.Sub(next.UpdatedAt); lease > 2*s.Trial.Block+5*time.Minute {
		v.violate("a candidate's lease is short", "revision %d: %v", next.Revision, lease)
	}
	if before != nil && before.Trial != nil && before.Trial.ID == t.ID && before.Trial.Candidate == t.Candidate {
		return
	}
	v.own[t.ID] = true
	if before != nil && before.Trial != nil {
		v.violate("at most one trial", "revision %d: trial %s follows %s, which has not ended", next.Revision, t.ID, before.Trial.ID)
	}
	d := p.journal.of(next.Revision)
	if d == nil || d.Trial != t.ID || d.To != t.Candidate {
		v.violate("every change is recorded first", "revision %d: trial %s has no record", next.Revision, t.ID)
		return
	}
	if s.Mode == tuner.Propose && !p.journal.approved(t.Candidate) {
		v.violate("only what was approved is tried", "revision %d: trial %s of %s", next.Revision, t.ID, t.Candidate)
	}
	if v.w.on(storeStopped) {
		v.violate("the kill switch is obeyed", "revision %d: trial %s", next.Revision, t.ID)
	}
	v.begins(p, next, d.Kind == store.KindShed)
}

// begins checks the start of a trial.
func (v *watch) begins(p *process, next *store.Document, shed bool) {
	s := v.w.plan.settings
	if n := steps(s.Bounds, next.Baseline, next.Trial.Candidate); n > s.Search.MaxStep && !shed {
		v.violate("steps stay within their limit", "revision %d: %s is %d rungs from %s, %d are allowed", next.Revision, next.Trial.Candidate, n, next.Baseline, s.Search.MaxStep)
	}
	if share := v.exposure(); share > s.Guard.MaxExposure+exposureSlack && !shed && v.w.now.After(v.excused) {
		v.violate("candidates run for no longer than they may", "trial %s begins with %.1f%% of the last %v spent on candidates, %.1f%% are allowed", next.Trial.ID, 100*share, exposureWindow, 100*s.Guard.MaxExposure)
	}
	if until := v.pauses[p]; p.clock().Before(until) {
		v.violate("nothing is tried in a pause", "trial %s begins at %s, the pause ends at %s", next.Trial.ID, p.clock().Format(time.TimeOnly), until.Format(time.TimeOnly))
	}
	if !opened(s.Schedule, p.clock()) {
		v.violate("trials begin within the schedule", "trial %s begins at %s", next.Trial.ID, p.clock().Format(time.RFC3339))
	}
	for _, r := range v.w.replicas {
		if f := r.policy.InForce(); f.Trial != nil && f.Trial.ID != next.Trial.ID && !r.dark && f.Trial.Assignment.Mode == store.AssignAll {
			v.violate("at most one trial", "trial %s begins while %s runs the candidate of %s", next.Trial.ID, r.name, f.Trial.ID)
		}
	}
}

func (v *watch) recorded(p *process, d store.Decision) {
	v.activity.Decisions[d.Kind]++
	if err := d.Validate(); err != nil {
		v.violate("records are valid", "%s: %v", d.ID, err)
	}
	v.settle(p)
}

// settle strikes out what p has recorded. The first record of a new start says
// what it found, for what its predecessor was killed before it could say.
func (v *watch) settle(p *process) {
	var open []owed
	for _, o := range v.owed {
		d := p.journal.of(o.revision)
		if o.by == p && d == nil && !p.journal.restartedSince(o.revision) {
			open = append(open, o)
		}
	}
	v.owed = open
}

// stepped checks what must hold when a tuner's turn is over.
func (v *watch) stepped(p *process) {
	v.activity.Steps++
	if p.err != nil {
		v.activity.Failed++
		return
	}
	for _, o := range v.owed {
		if o.by == p {
			v.violate("every change has a record", "revision %d ended a trial, and no record says so", o.revision)
		}
	}
	d, status := v.w.document(), p.tuner.Status()
	if d == nil || len(p.journal.records) == 0 {
		return
	}
	last := p.journal.records[len(p.journal.records)-1]
	incumbent, _ := v.w.plan.settings.Bounds.Clamp(d.Baseline)
	if logged := p.journal.incumbent(); logged != incumbent {
		v.violate("log and parameters agree", "%s's log says %s, revision %d has %s", p.name, logged, d.Revision, d.Baseline)
	}
	if status.Incumbent == nil || *status.Incumbent != incumbent {
		v.violate("log and parameters agree", "%s's status says %s, revision %d has %s", p.name, status.Incumbent, d.Revision, d.Baseline)
	}
	if v.w.plan.settings.Mode == tuner.Observe {
		return
	}
	if (last.Kind == store.KindAbort || last.Kind == store.KindKeep) && d.Trial != nil {
		v.violate("the incumbent is back after an abort", "%s recorded %s, revision %d: %s", p.name, last.Kind, d.Revision, describe(d))
	}
	if d.Trial != nil && (status.Trial == nil || status.Trial.ID != d.Trial.ID) {
		v.violate("no candidate runs that nobody watches", "revision %d: %s, %s is %q", d.Revision, describe(d), p.name, status.Doing)
	}
	v.judged(p, status)
}

// judged checks that what is judged as the candidate is the candidate.
func (v *watch) judged(p *process, s tuner.Status) {
	if s.Trial == nil || s.Trial.Arm != store.ArmCandidate || !strings.HasPrefix(s.Doing, "trial: comparing") || p.offset != v.w.clock {
		return
	}
	long := v.w.now.Add(-6 * p.tuner.Interval())
	for _, r := range v.w.replicas {
		if !r.dark && !r.refused && r.scrapeSkew == 0 && !r.baselineSince.IsZero() && r.baselineSince.Before(long) {
			v.violate("only a candidate in force is judged as one", "trial %s: %s has run the baseline since %s", s.Trial.ID, r.name, r.baselineSince.Format(time.TimeOnly))
		}
	}
}

func (v *watch) decided(r *plugin.Request, d plugin.Decision) {
	v.activity.Requests++
	if len(r.Evidence.Prompts) == 0 && (d.Action != plugin.Load || d.DisableOffload) {
		v.violate("requests fail open", "request %s without evidence: %s because of %s", r.ID, d.Action, d.Reason)
	}
}

// check what must hold at any time.
func (v *watch) check() {
	for _, r := range v.w.replicas {
		v.replica(r)
	}
	d := v.w.document()
	if d != nil && d.Trial != nil && !v.w.on(storeStopped) && v.own[d.Trial.ID] && d.Trial.Assignment.Mode == store.AssignAll && !d.Trial.Expired(v.w.now.Add(v.w.clock)) {
		v.exposed = append(v.exposed, v.w.now)
	}
}

// replica checks what an Endpoint Picker has in force.
func (v *watch) replica(r *replica) {
	f, now := r.policy.InForce(), v.w.now.Add(r.skew)
	if !owner.Contains(f.Baseline) || f.Trial != nil && !owner.Contains(f.Trial.Candidate) {
		v.violate("the plugin stays in its owner's bounds", "%s runs %s", r.name, f.Baseline)
	}
	if r.stopped && (f.Trial != nil || f.Baseline != static) {
		v.violate("the kill switch is obeyed", "%s runs %s", r.name, f.Baseline)
	}
	if !v.sound(f.Baseline) {
		v.violate("only what was stored is in force", "%s runs %s", r.name, f.Baseline)
	}
	if f.Trial == nil || f.Trial.Assignment.Mode == store.AssignNone {
		if r.baselineSince.IsZero() {
			r.baselineSince = v.w.now
		}
		return
	}
	r.baselineSince = time.Time{}
	switch a := r.applied; {
	case a == nil || a.Trial == nil:
		v.violate("only what was stored is in force", "%s runs trial %s, which no document has", r.name, f.Trial.ID)
	case a.Trial.Expired(now):
		v.violate("no trial runs past its expiry", "%s runs trial %s, which expired at %s, at %s", r.name, f.Trial.ID, a.Trial.ExpiresAt.Format(time.RFC3339), now.Format(time.RFC3339))
	case v.w.now.Sub(r.appliedAt) > store.MaxLease:
		v.violate("no trial runs past its expiry", "%s has run trial %s for longer than %v", r.name, f.Trial.ID, store.MaxLease)
	}
}

// sound tells that parameters are those of a document ever stored, or static.
func (v *watch) sound(p store.Params) bool {
	if p == static || v.known[p] {
		return true
	}
	for k := range v.known {
		if c, _ := owner.Clamp(k); c == p {
			return true
		}
	}
	return false
}

// finish checks that everything has recovered.
func (v *watch) finish() {
	v.activity.VirtualHours += (v.w.plan.length + calm).Hours()
	p := v.w.tuners[0]
	if p.tuner == nil || p.err != nil {
		v.violate("the pool recovers", "%v after everything works again: %v", calm, p.err)
		return
	}
	d := v.w.document()
	if d == nil {
		if v.w.plan.settings.Mode != tuner.Observe {
			v.violate("the pool recovers", "there is no document %v after everything works again", calm)
		}
		return
	}
	for _, r := range v.w.replicas {
		f := r.policy.InForce()
		clamped, _ := owner.Clamp(d.Baseline)
		if r.newest <= d.Revision && v.w.now.Sub(d.UpdatedAt.Add(-v.w.clock)) > time.Minute && (f.Revision != d.Revision || f.Baseline != clamped) {
			v.violate("the store's parameters are in force", "%s runs %s of revision %d, the store has %s of %d", r.name, f.Baseline, f.Revision, d.Baseline, d.Revision)
		}
	}
}
