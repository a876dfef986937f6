package tuner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

var (
	goodTokens = store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8}
	farAway    = store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: store.NoGate}
)

// order carries out a command as the shell does, and wants exactly one record of
// it, with who gave it.
func (w *world) order(o Command) (store.Decision, error) {
	w.t.Helper()
	o.Actor = "alice"
	if err := o.Validate(); err != nil {
		w.t.Fatal(err)
	}
	records := len(w.decisions)
	a, err := w.c.obey(w.now, o)
	if err != nil {
		if !errors.Is(err, ErrRefused) || a != (action{}) {
			w.t.Fatalf("%s: %v with %+v", o.Verb, err, a)
		}
		return store.Decision{}, err
	}
	if w.c.settings.Mode == Observe {
		a.change = nil
	}
	w.carryOut(a)
	if len(w.decisions) != records+1 || a.decision.Actor != "alice" {
		w.t.Fatalf("%s made %d records: %+v", o.Verb, len(w.decisions)-records, a.decision)
	}
	return *a.decision, nil
}

func (w *world) must(o Command) store.Decision {
	w.t.Helper()
	d, err := w.order(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// until runs step by step until a condition holds.
func (w *world) until(what string, met func() bool) {
	w.t.Helper()
	for range 4 * 60 * 48 {
		if met() {
			return
		}
		w.run(15 * time.Second)
	}
	w.t.Fatalf("waited 48 h for %s", what)
}

func collapsing(s *Sample, _ store.Params) {
	s.Signals.WaitingSeconds, s.Signals.RunningSeconds = 50*15, 10*15
	s.Signals.WithinSLO = 0.2 * s.Signals.FirstTokens
}

// situations are the states in which a command can arrive, each in a world of its
// own in which something is to be gained.
func situations(t *testing.T) map[string]*world {
	all := map[string]*world{}
	add := func(name string, best store.Params, bring func(w *world)) {
		w := newWorld(t, valley(best))
		bring(w)
		all[name] = w
	}
	add("just started", goodTokens, func(*world) {})
	add("watching", goodTokens, func(w *world) { w.run(2 * time.Minute) })
	add("candidate's block", goodTokens, func(w *world) { w.until("a trial", func() bool { return w.inForce() != w.baseline }) })
	add("incumbent's block", goodTokens, func(w *world) {
		w.until("the second block", func() bool { return w.trial != nil && w.inForce() == w.baseline })
	})
	add("probation", goodTokens, func(w *world) { w.until("a move", func() bool { return w.c.probation != nil }) })
	add("collapse", goodTokens, func(w *world) {
		w.run(5 * time.Minute)
		w.change = collapsing
		w.until("one sample of collapse", func() bool { return len(w.c.collapse) > 0 })
	})
	add("shed", goodTokens, func(w *world) {
		w.run(5 * time.Minute)
		w.change = collapsing
		w.until("a shed", func() bool { return w.trial != nil })
	})
	add("holding", goodTokens, func(w *world) {
		w.change = func(s *Sample, _ store.Params) { s.State, s.Why = Unknown, "prometheus is down" }
		w.run(10 * time.Minute)
	})
	add("resting", testSettings().Initial, func(w *world) { w.until("a rest", func() bool { return w.c.climber.Resting }) })
	add("schedule closed", goodTokens, func(w *world) { w.closed = true; w.run(5 * time.Minute) })
	add("observe", goodTokens, func(w *world) { w.c.settings.Mode = Observe; w.run(time.Hour) })
	add("propose", goodTokens, func(w *world) {
		w.c.settings.Mode = Propose
		w.until("a proposal", func() bool { return w.c.orders.offer != nil })
	})
	return all
}

func TestPauseHoldsTheIncumbentInEveryState(t *testing.T) {
	for name, w := range situations(t) {
		t.Run(name, func(t *testing.T) {
			w.t = t
			incumbent, inTrial := w.baseline, w.trial != nil
			d := w.must(Command{Verb: Pause, Reason: "deploying"})
			if d.Kind != store.KindPause || d.To != incumbent || !strings.Contains(d.Reason, `paused by alice until someone resumes it ("deploying")`) {
				t.Errorf("record %+v", d)
			}
			if w.trial != nil || inTrial != (d.Trial != "" && d.Evidence != nil) {
				t.Errorf("the trial %v is still there, or its evidence is lost: %+v", w.trial, d)
			}
			if name == "holding" {
				w.change = nil
			}
			records := len(w.decisions)
			w.run(6 * time.Hour)
			for _, d := range w.decisions[records:] {
				if d.Kind != store.KindHold && d.Kind != store.KindResume {
					t.Errorf("while paused: %s: %s", d.Kind, d.Reason)
				}
			}
			if w.inForce() != incumbent {
				t.Errorf("%s is in force, not the incumbent %s", w.inForce(), incumbent)
			}
			w.change, w.closed = nil, false
			w.must(Command{Verb: Resume})
			records = len(w.decisions)
			w.run(48 * time.Hour)
			if len(w.decisions) == records {
				t.Error("after the resume, nothing was decided in two days")
			}
		})
	}
}

func TestPauseEndsByItself(t *testing.T) {
	w := newWorld(t, valley(goodTokens))
	w.run(5 * time.Minute)
	w.must(Command{Verb: Pause, For: time.Hour})
	w.run(59 * time.Minute)
	if w.c.orders.Pause == nil || w.count(store.KindResume) != 0 {
		t.Error("the pause ended early")
	}
	w.acks = false // it ends even when nothing is seen
	w.run(2 * time.Minute)
	if d := w.last(store.KindResume); w.c.orders.Pause != nil || d == nil || d.Actor != "" || !strings.Contains(d.Reason, "the pause by alice is over") {
		t.Errorf("after an hour: %+v, %+v", w.c.orders.Pause, d)
	}
}

func TestPauseIsChangedByAnother(t *testing.T) {
	w := newWorld(t, flat)
	w.must(Command{Verb: Pause})
	w.must(Command{Verb: Pause, For: time.Hour})
	w.run(2 * time.Hour)
	if w.c.orders.Pause != nil {
		t.Errorf("still %s", w.c.orders.Pause)
	}
	if _, err := w.order(Command{Verb: Resume}); err == nil || !strings.Contains(err.Error(), "is not paused") {
		t.Errorf("resuming what is not paused: %v", err)
	}
}

// A clock that was years ahead must not leave a pause that lasts for years.
func TestClockWentBackInAPause(t *testing.T) {
	w := newWorld(t, flat)
	w.now = noon.Add(10 * 365 * 24 * time.Hour)
	w.must(Command{Verb: Pause, For: time.Hour})
	w.now = noon
	w.c.clockWentBack(noon, time.Hour)
	w.run(61 * time.Minute)
	if w.c.orders.Pause != nil {
		t.Errorf("still %s", w.c.orders.Pause)
	}
}

func TestRevertInEveryState(t *testing.T) {
	to := store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 2}
	for name, w := range situations(t) {
		t.Run(name, func(t *testing.T) {
			w.t = t
			d, err := w.order(Command{Verb: Revert, Target: ToRecord, Record: "x", Params: to, Reason: "worse for us"})
			if name == "observe" {
				if err == nil || !strings.Contains(err.Error(), "mode observe") {
					t.Errorf("got %v, %v", d, err)
				}
				return
			}
			if err != nil || d.Kind != store.KindRevert || d.To != to || w.baseline != to || w.trial != nil {
				t.Fatalf("%v; record %+v; baseline %s, trial %v", err, d, w.baseline, w.trial)
			}
			records := len(w.decisions)
			w.run(testSettings().Guard.Cooldown - time.Minute)
			for _, d := range w.decisions[records:] {
				if d.Kind == store.KindTrial {
					t.Errorf("right after the revert: %s", d.Reason)
				}
			}
		})
	}
}

func TestRevertTargets(t *testing.T) {
	initial := testSettings().Initial
	for name, tc := range map[string]struct {
		order Command
		want  store.Params
		says  string
	}{
		"last known good": {Command{Target: ToKnownGood}, initial, "the last known good"},
		"initial":         {Command{Target: ToInitial}, initial, "the initial parameters"},
		"a record":        {Command{Target: ToRecord, Record: "20261130T120000Z-0001", Params: store.Params{MinExternalReusableTokens: 256, MaxWaitingRequests: 4}}, store.Params{MinExternalReusableTokens: 256, MaxWaitingRequests: 4}, "decision 20261130T120000Z-0001"},
		"out of bounds":   {Command{Target: ToRecord, Record: "x", Params: farAway}, store.Params{MinExternalReusableTokens: 64, MaxWaitingRequests: 16}, "brought within bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, valley(store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 8}))
			w.c.settings.Bounds.MinExternalReusableTokens.Min = 64
			w.c.settings.Bounds.MaxWaitingRequests = store.WaitingRange{Min: 1, Max: 16}
			w.until("a move", func() bool { return w.baseline != initial && w.trial == nil })
			left := w.baseline
			tc.order.Verb = Revert
			if d := w.must(tc.order); w.baseline != tc.want || !strings.Contains(d.Reason, tc.says) {
				t.Errorf("baseline %s, want %s: %s", w.baseline, tc.want, d.Reason)
			}
			if !w.c.climber.failedRecently(left, w.now) {
				t.Errorf("%s would be proposed again at once", left)
			}
			if _, err := w.order(tc.order); err == nil {
				t.Error("what is in force already was gone back to")
			}
		})
	}
}

func TestNothingToRevertTo(t *testing.T) {
	w := newWorld(t, flat)
	_, err := w.order(Command{Verb: Revert, Target: ToKnownGood})
	if err == nil || !strings.Contains(err.Error(), "known nothing before") {
		t.Errorf("got %v", err)
	}
}

func TestFormerIncumbents(t *testing.T) {
	p := func(tokens store.Tokens) store.Params { return store.Params{MinExternalReusableTokens: tokens} }
	for name, tc := range map[string]struct{ path, want []store.Tokens }{
		"moves":                    {[]store.Tokens{1, 2, 3}, []store.Tokens{1, 2}},
		"the same again":           {[]store.Tokens{1, 1}, nil},
		"a rollback":               {[]store.Tokens{1, 2, 1}, nil},
		"a rollback after a move":  {[]store.Tokens{1, 2, 3, 2}, []store.Tokens{1}},
		"back over several":        {[]store.Tokens{1, 2, 3, 1}, nil},
		"on from what was rolled ": {[]store.Tokens{1, 2, 1, 3}, []store.Tokens{1}},
	} {
		var o orders
		for i := 1; i < len(tc.path); i++ {
			o.follow(p(tc.path[i-1]), p(tc.path[i]))
		}
		var got []store.Tokens
		for _, f := range o.Former {
			got = append(got, f.MinExternalReusableTokens)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var o orders
	for n := range store.Tokens(100) {
		o.follow(p(n+1), p(n+2))
	}
	if len(o.Former) != maxFormer {
		t.Errorf("%d former incumbents are remembered", len(o.Former))
	}
}

// proposing is a world in which a proposal waits.
func proposing(t *testing.T) *world {
	w := newWorld(t, valley(goodTokens))
	w.c.settings.Mode = Propose
	w.until("a proposal", func() bool { return w.c.orders.offer != nil })
	return w
}

func TestProposalWaitsForAnApproval(t *testing.T) {
	w := proposing(t)
	d := w.last(store.KindPropose)
	if w.trial != nil || d.Evidence == nil || len(d.Evidence.Samples) == 0 || d.Mode != store.ModePropose {
		t.Fatalf("trial %v; record %+v", w.trial, d)
	}
	w.run(30 * time.Minute)
	if w.trial != nil || w.count(store.KindPropose) != 1 {
		t.Fatalf("without an answer: trial %v, %d proposals", w.trial, w.count(store.KindPropose))
	}
	id := w.c.orders.offer.id
	if _, err := w.order(Command{Verb: Approve, Proposal: "p0"}); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("approving another proposal: %v", err)
	}
	if a := w.must(Command{Verb: Approve, Proposal: id}); a.To != d.To || w.trial != nil {
		t.Errorf("the approval itself: %+v, trial %v", a, w.trial)
	}
	if _, err := w.order(Command{Verb: Approve, Proposal: id}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("approving twice: %v", err)
	}
	w.run(30 * time.Second)
	if trial := w.last(store.KindTrial); w.trial == nil || trial.To != d.To || !strings.Contains(trial.Reason, "approved by alice") {
		t.Errorf("after the approval: %v, %+v", w.trial, trial)
	}
	w.until("its end", func() bool { return w.trial == nil })
}

func TestApprovedTrialIsGuarded(t *testing.T) {
	w := proposing(t)
	w.e2e = steep
	w.must(Command{Verb: Approve, Proposal: w.c.orders.offer.id})
	w.run(5 * time.Minute)
	if w.trial != nil || w.baseline != testSettings().Initial || w.count(store.KindAbort) != 1 {
		t.Errorf("trial %v, baseline %s, %d aborts", w.trial, w.baseline, w.count(store.KindAbort))
	}
}

func TestProposalLapses(t *testing.T) {
	for name, approve := range map[string]bool{"unanswered": false, "approved, but never in a state to start": true} {
		t.Run(name, func(t *testing.T) {
			w := proposing(t)
			if approve {
				w.must(Command{Verb: Approve, Proposal: w.c.orders.offer.id})
				w.closed = true
			}
			w.run(testSettings().Approval + 15*time.Second)
			if d := w.last(store.KindReject); w.c.orders.offer != nil || d == nil || d.Actor != "" || !strings.Contains(d.Reason, "has lapsed") {
				t.Errorf("offer %+v, record %+v", w.c.orders.offer, d)
			}
			if _, err := w.order(Command{Verb: Approve, Proposal: "p1"}); err == nil || !strings.Contains(err.Error(), "no proposal waits") {
				t.Errorf("answering too late: %v", err)
			}
			w.closed = false
			w.run(3 * time.Hour)
			if w.count(store.KindPropose) < 2 || w.count(store.KindTrial) > 0 {
				t.Errorf("%d proposals, %d trials", w.count(store.KindPropose), w.count(store.KindTrial))
			}
		})
	}
}

func TestRejectedIsNotProposedAgainAtOnce(t *testing.T) {
	w := proposing(t)
	d := w.must(Command{Verb: Reject, Proposal: w.c.orders.offer.id, Reason: "not before the launch"})
	if d.Kind != store.KindReject || w.c.orders.offer != nil {
		t.Errorf("record %+v", d)
	}
	before := len(w.decisions)
	w.run(10 * time.Minute)
	for _, again := range w.decisions[before:] {
		if again.Kind == store.KindPropose && again.To == d.To {
			t.Errorf("proposed again: %s", again.Reason)
		}
	}
}

// In mode Propose even a shed asks first, and is answered only while it lasts.
func TestShedIsProposed(t *testing.T) {
	w := newWorld(t, flat)
	w.c.settings.Mode = Propose
	w.run(5 * time.Minute)
	w.change = func(s *Sample, p store.Params) {
		if p.MinExternalReusableTokens != store.Never {
			collapsing(s, p)
		}
	}
	w.run(2 * time.Minute)
	if w.trial != nil || w.c.orders.offer == nil || w.c.orders.offer.proposal.origin != fromShed {
		t.Fatalf("trial %v, offer %+v", w.trial, w.c.orders.offer)
	}
	w.must(Command{Verb: Approve, Proposal: w.c.orders.offer.id})
	w.run(time.Minute)
	if w.trial == nil || w.trial.Candidate.MinExternalReusableTokens != store.Never {
		t.Errorf("after the approval: %+v", w.trial)
	}
}

func TestOnlyProposeAsks(t *testing.T) {
	w := newWorld(t, flat)
	if _, err := w.order(Command{Verb: Approve, Proposal: "p1"}); err == nil || !strings.Contains(err.Error(), "mode enforce, which asks nobody") {
		t.Errorf("got %v", err)
	}
}

func TestCommandsThatNoPoolAccepts(t *testing.T) {
	for field, o := range map[string]Command{
		"verb":     {Verb: "explode", Actor: "a"},
		"by":       {Verb: Pause},
		"reason":   {Verb: Pause, Actor: "a", Reason: "two\nlines"},
		"for":      {Verb: Pause, Actor: "a", For: time.Second},
		"to":       {Verb: Revert, Actor: "a", Target: "elsewhere"},
		"proposal": {Verb: Approve, Actor: "a"},
		"maxWaitingRequests": {Verb: Revert, Actor: "a", Target: ToRecord,
			Params: store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: -1}},
	} {
		err := o.Validate()
		var f *store.FieldError
		if !errors.As(err, &f) || f.Field != field {
			t.Errorf("%+v: %v, want the field %s", o, err, field)
		}
	}
	for _, o := range []Command{
		{Verb: Resume, Actor: "a", For: time.Hour}, {Verb: Pause, Actor: strings.Repeat("a", MaxActor+1)},
		{Verb: Pause, Actor: "a\x1b[2J"}, {Verb: Pause, Actor: "a", Reason: strings.Repeat("x", MaxReason+1)},
		{Verb: Pause, Actor: "a", For: 366 * 24 * time.Hour}, {Verb: Pause, Actor: "a", Reason: "\u202egnp"},
	} {
		if err := o.Validate(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Whatever operators do, and whenever: parameters stay within bounds, every
// accepted command has one record, a pause lets no candidate run, and in mode
// Propose no trial starts without an approval.
func TestOrdersAtRandom(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		best := rapid.SampledFrom([]store.Params{goodTokens, {MinExternalReusableTokens: 128, MaxWaitingRequests: 2}}).Draw(r, "best")
		w := newWorld(t, valley(best))
		w.c.settings.Mode = rapid.SampledFrom([]Mode{Propose, Enforce}).Draw(r, "mode")
		for range rapid.IntRange(1, 25).Draw(r, "events") {
			o := Command{Verb: rapid.SampledFrom(append(Verbs(), "")).Draw(r, "verb"), Proposal: "p0", Target: ToRecord, Params: farAway}
			if o.Verb != Revert {
				o.Target = ""
			}
			if f := w.c.orders.offer; f != nil {
				o.Proposal = f.id
			}
			if o.Verb != "" {
				_, _ = w.order(o) // a refusal is fine
			}
			w.acks = rapid.IntRange(0, 5).Draw(r, "acks") > 0
			for range rapid.IntRange(1, 60).Draw(r, "steps") {
				approved := w.c.orders.offer != nil && w.c.orders.offer.approved != ""
				running := w.trial != nil
				w.run(15 * time.Second)
				if w.c.orders.Pause != nil && w.trial != nil {
					r.Fatalf("paused, and %s is tried", w.trial.Candidate)
				}
				if w.trial != nil && !running && w.c.settings.Mode == Propose && !approved {
					r.Fatalf("%s is tried without an approval", w.trial.Candidate)
				}
			}
		}
	})
}
