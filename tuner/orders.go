package tuner

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// orders are what operators have told a pool, and what it asks them.
type orders struct {
	Pause *PauseStatus `json:"pause,omitempty"`
	// Former incumbents, the latest last, without those that were left because
	// they turned out worse.
	Former []store.Params `json:"former,omitempty"`
	offer  *offer
}

// PauseStatus is a pause in force.
type PauseStatus struct {
	Since time.Time `json:"since"`
	// Until is when it ends by itself; the zero time means never.
	Until  time.Time `json:"until,omitzero"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason,omitempty"`
}

// String says who paused, until when and why.
func (p PauseStatus) String() string {
	end := "until someone resumes it"
	if !p.Until.IsZero() {
		end = "until " + clock(p.Until)
	}
	return fmt.Sprintf("paused by %s %s%s", p.Actor, end, Command{Reason: p.Reason}.because())
}

func samePause(a, b *PauseStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Since.Equal(b.Since) && a.Until.Equal(b.Until) && a.Actor == b.Actor && a.Reason == b.Reason
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// offer is a proposal that waits for an approval, or, approved, for its trial.
type offer struct {
	id       string
	proposal proposal
	until    time.Time
	approved string // by whom
}

// maxFormer bounds the former incumbents that are remembered.
const maxFormer = 16

// follow a change of the incumbent. Going back forgets what was gone back from.
func (o *orders) follow(from, to store.Params) {
	if from == to {
		return
	}
	if i := slices.Index(o.Former, to); i >= 0 {
		o.Former = slices.Clone(o.Former[:i])
		return
	}
	o.Former = append(slices.Clone(o.Former), from)
	o.Former = o.Former[max(0, len(o.Former)-maxFormer):]
}

// report what an operator sees of it.
func (o *orders) report(s *Status, p *probation) {
	s.Paused, s.Proposal, s.KnownGood = o.Pause, nil, nil
	if f := o.offer; f != nil {
		s.Proposal = &ProposalStatus{ID: f.id, Candidate: f.proposal.params, Why: f.proposal.why, Until: f.until, Approved: f.approved}
	}
	if good, ok := o.knownGood(p); ok {
		s.KnownGood = &good
	}
}

// knownGood is the incumbent before the last move that stands.
func (o *orders) knownGood(p *probation) (good store.Params, ok bool) {
	switch {
	case p != nil:
		return p.former, true
	case len(o.Former) > 0:
		return o.Former[len(o.Former)-1], true
	}
	return good, false
}

// clockWentBack keeps a pause from lasting longer than it was meant to.
func (o *orders) clockWentBack(now time.Time, approval time.Duration) {
	if p := o.Pause; p != nil && !p.Until.IsZero() && p.Since.After(now) {
		moved := *p
		moved.Since, moved.Until = now, now.Add(p.Until.Sub(p.Since))
		o.Pause = &moved
	}
	if o.offer != nil {
		o.offer.until = sooner(o.offer.until, now.Add(approval))
	}
}

// obey turns a command into an action, or says why it is refused.
func (c *controller) obey(now time.Time, o Command) (action, error) {
	switch o.Verb {
	case Pause:
		return c.pause(now, o), nil
	case Resume:
		return c.resume(now, o)
	case Revert:
		return c.revert(now, o)
	default:
		return c.answer(now, o)
	}
}

// ordered makes the record of a command.
func (c *controller) ordered(k store.Kind, now time.Time, o Command, to store.Params, reason string) action {
	a := c.decide(k, Sample{To: now, State: Unknown}, to, reason)
	a.decision.Evidence, a.decision.Actor = nil, o.Actor
	return a
}

// withdraw ends a trial for an operator. What it showed goes into the record.
func (c *controller) withdraw(now time.Time, a *action) string {
	t := c.trial
	if t == nil {
		return ""
	}
	_, effect := t.look(c.settings.Trial, c.logCosts(c.history))
	a.decision.Trial = t.id
	a.decision.Evidence = t.evidence(cancelled, effect, c.incumbent, c.settings.Objective, c.lastSample.Queries)
	a.change = &change{baseline: c.incumbent}
	c.leaveTrial(now)
	c.forgetSamples()
	return fmt.Sprintf("; the trial of %s is withdrawn", t.proposal.params)
}

func (c *controller) pause(now time.Time, o Command) action {
	p := &PauseStatus{Since: now.UTC(), Actor: o.Actor, Reason: o.Reason}
	if o.For > 0 {
		p.Until = p.Since.Add(o.For)
	}
	c.orders.Pause, c.orders.offer, c.probation = p, nil, nil
	a := c.ordered(store.KindPause, now, o, c.incumbent, "")
	a.decision.Reason = fmt.Sprintf("%s: %s stays%s", p, c.incumbent, c.withdraw(now, &a))
	return a
}

func (c *controller) resume(now time.Time, o Command) (action, error) {
	p := c.orders.Pause
	if p == nil {
		return action{}, refuse("pool %s is not paused", c.settings.Name)
	}
	c.endPause(now)
	return c.ordered(store.KindResume, now, o, c.incumbent,
		fmt.Sprintf("%s resumed tuning%s, which was %s", o.Actor, o.because(), p)), nil
}

// endPause goes on where the pause began, unless that is too long ago to count.
func (c *controller) endPause(now time.Time) {
	if now.Sub(c.orders.Pause.Since) > historyLength*c.settings.step() {
		c.climber.wake(c.settings.Search, now)
	}
	c.orders.Pause, c.change = nil, cusum{}
}

// overdue ends what was bounded in time: a pause, or the wait for an approval.
func (c *controller) overdue(s Sample) (action, bool) {
	if p := c.orders.Pause; p != nil && !p.Until.IsZero() && !s.To.Before(p.Until) {
		c.endPause(s.To)
		return c.decide(store.KindResume, s, c.incumbent, fmt.Sprintf("the pause by %s is over: tuning goes on", p.Actor)), true
	}
	f := c.orders.offer
	if f == nil || s.To.Before(f.until) {
		return action{}, false
	}
	c.orders.offer = nil
	c.suggested[f.proposal.params] = s.To.Add(c.settings.Search.Explore)
	why := "nobody approved it in time"
	if f.approved != "" {
		why = "approved by " + f.approved + ", but the pool did not let it start in time"
	}
	return c.decide(store.KindReject, s, f.proposal.params, fmt.Sprintf("proposal %s of %s has lapsed: %s", f.id, f.proposal.params, why)), true
}

// watchPaused keeps the incumbent's samples up to date, and does nothing.
func (c *controller) watchPaused(s Sample) action {
	if _, ok := c.settings.Objective.Cost(s.Signals); ok && s.State != Idle {
		c.remember(s)
	}
	return action{}
}

func (c *controller) revert(now time.Time, o Command) (action, error) {
	if c.settings.Mode == Observe {
		return action{}, refuse("pool %s is in mode observe, which publishes nothing: edit its document, or set another mode", c.settings.Name)
	}
	to, what, err := c.target(o)
	if err != nil {
		return action{}, err
	}
	to, moved := c.settings.clamp(to)
	if moved {
		what += ", brought within bounds,"
	}
	if to == c.incumbent && c.trial == nil {
		return action{}, refuse("%s, %s, is in force in pool %s", to, what, c.settings.Name)
	}
	a := c.ordered(store.KindRevert, now, o, to, "")
	withdrawn := c.withdraw(now, &a)
	a.change = &change{baseline: to}
	a.decision.Reason = fmt.Sprintf("%s went back from %s to %s, %s%s%s", o.Actor, c.incumbent, to, what, o.because(), withdrawn)
	if to != c.incumbent {
		c.leave(to, now)
	}
	c.cooldown = later(c.cooldown, now.Add(c.settings.Guard.Cooldown))
	return a, nil
}

// leave the incumbent for one that an operator prefers: it is not proposed again
// for a while.
func (c *controller) leave(to store.Params, now time.Time) {
	c.climber.rejected(proposal{params: c.incumbent, origin: fromModel}, c.settings.Search, now, true)
	c.memory = c.memory.forget(c.incumbent)
	c.incumbent, c.probation, c.orders.offer = to, nil, nil
	c.forgetSamples()
}

// target is where a revert leads, and what that is in words.
func (c *controller) target(o Command) (to store.Params, what string, err error) {
	switch o.Target {
	case ToInitial:
		return c.settings.Initial, "the initial parameters", nil
	case ToRecord:
		return o.Params, "what decision " + o.Record + " left in force", nil
	}
	if good, ok := c.orders.knownGood(c.probation); ok {
		return good, "the last known good", nil
	}
	return to, "", refuse("pool %s has known nothing before %s: name initial or a decision to go back to", c.settings.Name, c.incumbent)
}

// permitted starts a trial; in mode Propose only once an operator has allowed it.
func (c *controller) permitted(s Sample, p proposal, before []Sample) action {
	f := c.orders.offer
	switch {
	case c.settings.Mode != Propose:
		return c.start(s, p, before)
	case f == nil || f.proposal.params != p.params || (f.proposal.origin == fromShed) != (p.origin == fromShed):
		return c.ask(s, p, before)
	case f.approved == "":
		return action{}
	}
	c.orders.offer = nil
	a := c.start(s, p, before)
	a.decision.Reason += "; approved by " + f.approved
	return a
}

// ask for an approval, with the evidence that a trial's record would have. What
// has just lapsed is not asked again at once.
func (c *controller) ask(s Sample, p proposal, before []Sample) action {
	if until, lapsed := c.suggested[p.params]; lapsed && s.To.Before(until) {
		return action{}
	}
	f := &offer{id: "p" + s.To.UTC().Format("20060102T150405Z"), proposal: p, until: s.To.Add(c.settings.Approval)}
	c.orders.offer = f
	a := c.decide(store.KindPropose, s, p.params, fmt.Sprintf("proposal %s: try %s instead of %s: %s; it waits for an approval until %s",
		f.id, p.params, c.incumbent, p.why, clock(f.until)))
	a.decision.Evidence.Samples = nil
	for _, b := range before {
		a.decision.Evidence.Samples = append(a.decision.Evidence.Samples, b.record(store.ArmBaseline, c.settings.Objective))
	}
	a.decision.Evidence.Alternatives, a.decision.Evidence.Curves = p.alternatives, p.curves
	return a
}

// answer to a proposal. An approved one starts when the pool is next in a state
// to begin a trial; a rejected one is not proposed again for a while.
func (c *controller) answer(now time.Time, o Command) (action, error) {
	f := c.orders.offer
	switch {
	case c.settings.Mode != Propose:
		return action{}, refuse("pool %s is in mode %s, which asks nobody", c.settings.Name, c.settings.Mode)
	case f == nil:
		return action{}, refuse("no proposal waits for an answer in pool %s", c.settings.Name)
	case f.id != o.Proposal:
		return action{}, refuse("proposal %s does not wait in pool %s; %s does", o.Proposal, c.settings.Name, f.id)
	case f.approved != "" && o.Verb == Approve:
		return action{}, refuse("%s has approved proposal %s already", f.approved, f.id)
	}
	if o.Verb == Approve {
		f.approved, f.until = o.Actor, later(f.until, now.Add(2*c.settings.Trial.Block))
		return c.ordered(store.KindApprove, now, o, f.proposal.params, fmt.Sprintf("%s approved proposal %s: %s is tried instead of %s%s",
			o.Actor, f.id, f.proposal.params, c.incumbent, o.because())), nil
	}
	c.orders.offer = nil
	c.climber.rejected(f.proposal, c.settings.Search, now, false)
	c.suggested[f.proposal.params] = c.climber.Tried[f.proposal.params].until
	return c.ordered(store.KindReject, now, o, f.proposal.params, fmt.Sprintf("%s rejected proposal %s: %s is not tried%s",
		o.Actor, f.id, f.proposal.params, o.because())), nil
}
