package tuner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// world is a made-up pool whose cost is a function of the parameters in force:
// what the controller should find is known exactly.
type world struct {
	t        *testing.T
	c        *controller
	now      time.Time
	rng      *rand.Rand
	noise    float64
	e2e      func(p store.Params, at time.Duration) float64
	change   func(s *Sample, p store.Params)
	acks     bool
	closed   bool
	baseline store.Params
	trial    *store.Trial
	revision int64

	decisions []store.Decision
	exposed   time.Duration // time the candidate was in force
}

func newWorld(t *testing.T, e2e func(store.Params, time.Duration) float64) *world {
	s := testSettings()
	w := &world{t: t, now: noon, rng: rand.New(rand.NewPCG(1, 1)), noise: 0.02, e2e: e2e, acks: true, baseline: s.Initial, revision: 1}
	w.c = newController(s, s.Initial, noon)
	w.c.awaiting(1, noon)
	return w
}

func (w *world) inForce() store.Params {
	if w.trial != nil && w.trial.Assignment.Mode == store.AssignAll {
		return w.trial.Candidate
	}
	return w.baseline
}

func (w *world) sample() Sample {
	p := w.inForce()
	const seconds, requests = 15, 300
	e2e := w.e2e(p, w.now.Sub(noon)) * math.Exp(w.noise*w.rng.NormFloat64())
	s := Sample{From: w.now.Add(-seconds * time.Second), To: w.now, State: OK, Signals: Signals{
		CopySeconds: 1, // engines do restore
		Seconds:     seconds, Requests: requests, E2ESeconds: requests * e2e, FirstTokens: requests, TTFTSeconds: 0.1 * requests * e2e,
		WithinSLO: requests, HasSLO: true, Prompt: 1000 * requests, RunningSeconds: 60 * seconds, Engines: 4,
	}}
	s.Plugin = PluginSample{State: OK, Replicas: 1, Oldest: w.revision, Newest: w.revision, Adaptive: true, Loads: 100, Recomputes: 200, GateStops: 20}
	if !w.acks {
		s.Plugin.Oldest = 0
	}
	if w.change != nil {
		w.change(&s, p)
	}
	return s
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(15 * time.Second)
		if w.inForce() != w.baseline {
			w.exposed += 15 * time.Second
		}
		w.carryOut(w.c.next(observation{sample: w.sample(), open: !w.closed, room: !w.closed}))
	}
}

// carryOut records and publishes, as the shell does.
func (w *world) carryOut(a action) {
	w.t.Helper()
	if a.decision != nil {
		a.decision.ID = store.NewID(w.now, uint64(len(w.decisions)))
		if err := a.decision.Validate(); err != nil {
			w.t.Fatalf("record %+v: %v", a.decision, err)
		}
		w.decisions = append(w.decisions, *a.decision)
	}
	if a.change == nil {
		return
	}
	if a.change.baseline != w.baseline && a.decision == nil {
		w.t.Fatal("the baseline changed without a record")
	}
	w.c.orders.follow(w.baseline, a.change.baseline)
	w.baseline, w.trial = a.change.baseline, a.change.trial
	w.revision++
	w.c.awaiting(w.revision, w.now)
	w.checkInvariants()
}

func (w *world) checkInvariants() {
	b := w.c.settings.Bounds
	if !b.Contains(w.baseline) {
		w.t.Fatalf("baseline %s leaves the bounds", w.baseline)
	}
	if w.trial == nil {
		return
	}
	if !b.Contains(w.trial.Candidate) || !w.trial.ExpiresAt.After(w.now) || w.trial.ExpiresAt.Sub(w.now) > store.MaxLease {
		w.t.Fatalf("trial %+v at %s", w.trial, w.now)
	}
}

func (w *world) count(k store.Kind) int {
	n := 0
	for _, d := range w.decisions {
		if d.Kind == k {
			n++
		}
	}
	return n
}

func (w *world) last(k store.Kind) *store.Decision {
	for i := len(w.decisions) - 1; i >= 0; i-- {
		if w.decisions[i].Kind == k {
			return &w.decisions[i]
		}
	}
	return nil
}

// valley has its minimum at the given rungs of tokens and waiting; each
// doubling away costs five percent.
func valley(best store.Params) func(store.Params, time.Duration) float64 {
	rung := func(p store.Params) (float64, float64) {
		tokens, waiting := 16.0, 7.0
		if p.MinExternalReusableTokens != store.Never {
			tokens = math.Log2(float64(p.MinExternalReusableTokens))
		}
		if p.MaxWaitingRequests != store.NoGate {
			waiting = math.Log2(float64(p.MaxWaitingRequests))
		}
		return max(tokens, 5), waiting
	}
	bt, bw := rung(best)
	return func(p store.Params, _ time.Duration) float64 {
		t, w := rung(p)
		return 2 * (1 + 0.05*math.Abs(t-bt) + 0.05*math.Abs(w-bw))
	}
}

func flat(store.Params, time.Duration) float64 { return 2 }

func TestClimbsToTheBest(t *testing.T) {
	for _, best := range []store.Params{
		{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8},
		{MinExternalReusableTokens: 128, MaxWaitingRequests: 2},
		{MinExternalReusableTokens: 1024, MaxWaitingRequests: 32},
	} {
		w := newWorld(t, valley(best))
		w.run(24 * time.Hour)
		got := w.e2e(w.baseline, 0)
		if start := w.e2e(testSettings().Initial, 0); got > 2.11 || got >= start {
			t.Errorf("best %s: ended at %s, cost %.2f (start %.2f, best 2.00)", best, w.baseline, got, start)
		}
		if w.trial == nil && w.count(store.KindMove) == 0 {
			t.Errorf("best %s: no move was recorded", best)
		}
	}
}

// On a flat surface nothing is gained, and nothing may be lost: no move, and
// ever fewer trials.
func TestRestsOnAFlatSurface(t *testing.T) {
	w := newWorld(t, flat)
	w.run(24 * time.Hour)
	if n := w.count(store.KindMove); n > 0 {
		t.Errorf("%d moves without an improvement: %s", n, w.last(store.KindMove).Reason)
	}
	if n := w.count(store.KindTrial); n > 12 {
		t.Errorf("%d trials in a day of nothing new", n)
	}
	if w.count(store.KindRest) == 0 {
		t.Error("the search never rested")
	}
	if w.exposed > 2*time.Hour {
		t.Errorf("candidates ran for %v of a day", w.exposed)
	}
}

// steep makes every neighbour much worse.
func steep(p store.Params, _ time.Duration) float64 {
	if p == testSettings().Initial {
		return 2
	}
	return 3.5
}

func TestGuardEndsABadTrialQuickly(t *testing.T) {
	w := newWorld(t, steep)
	w.run(6 * time.Hour)
	if w.baseline != testSettings().Initial {
		t.Fatalf("moved to %s, which is worse", w.baseline)
	}
	if trials := w.count(store.KindTrial); trials == 0 || w.exposed > time.Duration(trials)*time.Minute {
		t.Errorf("%d trials exposed the pool for %v", trials, w.exposed)
	}
	if d := w.last(store.KindAbort); d == nil || !strings.Contains(d.Reason, "guard.maxRegression") {
		t.Errorf("no abort names the guard: %+v", d)
	}
}

func TestSLOBreachEndsATrialAtOnce(t *testing.T) {
	w := newWorld(t, flat)
	w.change = func(s *Sample, p store.Params) {
		if p != w.baseline {
			s.Signals.WithinSLO = 0.5 * s.Signals.FirstTokens
		}
	}
	for w.count(store.KindTrial) == 0 {
		w.run(time.Minute)
	}
	w.run(time.Minute)
	if d := w.last(store.KindAbort); d == nil || !strings.Contains(d.Reason, "guard.within") {
		t.Fatalf("abort %+v", d)
	}
	if w.exposed > 30*time.Second {
		t.Errorf("the candidate stayed for %v after the breach", w.exposed)
	}
}

// Missing data never moves a parameter: a trial ends, and nothing else happens.
func TestMissingDataFailsStatic(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(*Sample)
	}{
		{"engines", func(s *Sample) { s.State, s.Why = Unknown, "prometheus is down" }},
		{"plugin", func(s *Sample) { s.Plugin = PluginSample{State: Unknown, Why: "the EPP is gone"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, valley(store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 8}))
			for w.trial == nil {
				w.run(15 * time.Second)
			}
			w.change = func(s *Sample, _ store.Params) { tc.lose(s) }
			before := w.baseline
			w.run(3 * time.Hour)
			if w.trial != nil || w.baseline != before || w.count(store.KindMove) > 0 {
				t.Errorf("after losing data: baseline %s (was %s), trial %v", w.baseline, before, w.trial)
			}
			if w.count(store.KindAbort) != 1 || w.count(store.KindHold) != 1 {
				t.Errorf("%d aborts and %d holds recorded, want one each", w.count(store.KindAbort), w.count(store.KindHold))
			}
		})
	}
}

// A replica that restarts falls back to its static configuration: what it serves
// until it has the document again is nobody's sample.
func TestReplicaRestartPausesTheTrial(t *testing.T) {
	w := newWorld(t, flat)
	for w.c.trial == nil || w.c.trial.judged[store.ArmCandidate] < 2 {
		w.run(15 * time.Second)
	}
	judged := w.c.trial.judged[store.ArmCandidate]
	w.acks = false
	w.run(time.Minute)
	if got := w.c.trial.judged[store.ArmCandidate]; got != judged {
		t.Errorf("%d samples were judged without the candidate in force", got-judged)
	}
	w.acks = true
	w.run(3 * time.Minute)
	if w.c.trial != nil && w.c.trial.judged[store.ArmCandidate] == judged && w.c.trial.onCandidate {
		t.Error("the trial did not go on when the replica was back")
	}
}

// What ends a trial without its fault does not count against the candidate.
func TestCancelledTrialsDoNotBackOff(t *testing.T) {
	w := newWorld(t, flat)
	for range 6 {
		for w.trial == nil {
			w.run(15 * time.Second)
		}
		w.closed = true
		w.run(time.Hour)
		w.closed = false
	}
	if w.c.aborts != 0 {
		t.Errorf("%d aborts were counted", w.c.aborts)
	}
	if n := w.count(store.KindTrial); n != 6 {
		t.Errorf("%d trials in six windows", n)
	}
}

// A candidate that collapses the pool leaves a backlog. That is not the
// incumbent's collapse, and nothing is shed for it.
func TestCandidateCollapseIsNotTheIncumbents(t *testing.T) {
	w := newWorld(t, flat)
	backlog := 0
	w.change = func(s *Sample, p store.Params) {
		if p != w.baseline {
			backlog = 3
		}
		if backlog > 0 {
			backlog--
			s.Signals.WaitingSeconds, s.Signals.RunningSeconds = 50*15, 10*15
			s.Signals.WithinSLO = 0.2 * s.Signals.FirstTokens
		}
	}
	w.run(6 * time.Hour)
	if d := w.last(store.KindShed); d != nil {
		t.Errorf("shed: %s", d.Reason)
	}
	if w.baseline != testSettings().Initial || w.count(store.KindAbort) == 0 {
		t.Errorf("baseline %s, %d aborts", w.baseline, w.count(store.KindAbort))
	}
}

// A pool that is wedged completes nothing, so no latency shows it.
func TestStallEndsATrialAndIsShed(t *testing.T) {
	stall := func(s *Sample) {
		s.Signals.Requests, s.Signals.E2ESeconds, s.Signals.FirstTokens, s.Signals.TTFTSeconds, s.Signals.WithinSLO = 0, 0, 0, 0, 0
		s.Signals.WaitingSeconds, s.Signals.RunningSeconds = 60*15, 0
		s.Plugin.Loads = 0
	}
	w := newWorld(t, flat)
	w.change = func(s *Sample, p store.Params) {
		if p != w.baseline {
			stall(s)
		}
	}
	for w.count(store.KindTrial) == 0 {
		w.run(15 * time.Second)
	}
	w.run(30 * time.Second)
	if d := w.last(store.KindAbort); d == nil || !strings.Contains(d.Reason, "nothing has completed") {
		t.Errorf("the candidate that wedges the pool: %+v", d)
	}

	w = newWorld(t, flat)
	w.run(5 * time.Minute)
	w.change = func(s *Sample, p store.Params) {
		if p.MinExternalReusableTokens != store.Never {
			stall(s)
		}
	}
	w.run(time.Minute)
	if w.last(store.KindShed) == nil {
		t.Error("an incumbent that wedges the pool was not shed")
	}
}

// A wake starts the search over, but frees nothing that the guard has stopped.
func TestWakeKeepsWhatWasAborted(t *testing.T) {
	c := newClimber(testSettings().Search, noon)
	bad, dull := store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 0}, store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 8}
	c.rejected(proposal{params: bad, origin: fromModel}, testSettings().Search, noon, true)
	c.rejected(proposal{params: dull, origin: fromModel}, testSettings().Search, noon, false)
	c.wake(testSettings().Search, noon.Add(time.Minute))
	if !c.failedRecently(bad, noon.Add(2*time.Minute)) || c.failedRecently(dull, noon.Add(2*time.Minute)) {
		t.Errorf("after a wake: %+v", c.Tried)
	}
}

func TestChangeIsNoticed(t *testing.T) {
	w := newWorld(t, func(_ store.Params, at time.Duration) float64 {
		if at > 2*time.Hour {
			return 2.6
		}
		return 2
	})
	w.run(2 * time.Hour)
	before := w.count(store.KindWake)
	w.run(time.Hour)
	if w.count(store.KindWake) != before+1 {
		t.Errorf("%d wakes before the change, %d after it", before, w.count(store.KindWake))
	}
}

// No clock, however far off it was, leaves a wait that outlasts its own maximum.
func TestClockWentBack(t *testing.T) {
	w := newWorld(t, valley(store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 8}))
	w.now = noon.Add(10 * 365 * 24 * time.Hour)
	w.c.awaiting(w.revision, w.now)
	for w.trial == nil {
		w.run(15 * time.Second)
	}
	w.now = noon
	w.c.clockWentBack(noon, time.Hour)
	w.run(15 * time.Second)
	if w.trial != nil {
		t.Error("a trial dated ten years ahead goes on")
	}
	trials := w.count(store.KindTrial)
	w.run(30 * time.Hour)
	if w.count(store.KindTrial) == trials {
		t.Error("nothing was tried again")
	}
}

func TestExposureIsBounded(t *testing.T) {
	w := newWorld(t, flat)
	w.c.settings.Guard.MaxExposure = 0.02
	w.c.settings.Search.Explore, w.c.settings.Search.MaxExplore = time.Minute, time.Minute
	w.c.search.settings = w.c.settings
	w.run(12 * time.Hour)
	if share := w.exposed.Seconds() / (12 * 3600); share > 0.08 {
		t.Errorf("candidates were in force for %.3f of the time", share)
	}
}

func TestUnacknowledgedTrialIsAborted(t *testing.T) {
	w := newWorld(t, flat)
	for w.trial == nil {
		w.run(15 * time.Second)
	}
	w.acks = false
	w.run(3 * time.Minute)
	if d := w.last(store.KindAbort); d == nil || !strings.Contains(d.Reason, "the EPP replicas show revisions") {
		t.Errorf("abort %+v", d)
	}
}

// A replica whose clock is ahead drops every candidate: its baseline must not be
// judged as one.
func TestExpiredCandidateIsNotJudged(t *testing.T) {
	w := newWorld(t, flat)
	w.change = func(s *Sample, _ store.Params) { s.Plugin.Expired = w.trial != nil }
	w.run(2 * time.Hour)
	if ended := w.count(store.KindAbort); ended == 0 || ended < w.count(store.KindTrial)-1 {
		t.Errorf("%d trials, %d aborted", w.count(store.KindTrial), w.count(store.KindAbort))
	}
	for _, d := range w.decisions {
		if d.Kind == store.KindAbort && !strings.Contains(d.Reason, "is its clock ahead") {
			t.Errorf("aborted because %s", d.Reason)
		}
	}
}

func TestNothingStartsOutsideTheSchedule(t *testing.T) {
	w := newWorld(t, valley(store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 8}))
	w.closed = true
	w.run(5 * time.Hour)
	if len(w.decisions) != 0 {
		t.Fatalf("decided outside the schedule: %+v", w.decisions)
	}
	w.closed = false
	for w.trial == nil {
		w.run(15 * time.Second)
	}
	w.closed = true
	w.run(15 * time.Second)
	if w.trial != nil || w.last(store.KindAbort) == nil {
		t.Error("a trial went on after its window had closed")
	}
}

// A collapse is answered at once, and the shed stays if it helped.
func TestShedsOnCollapse(t *testing.T) {
	collapse := func(p store.Params, at time.Duration) float64 {
		if at > 30*time.Minute && p.MinExternalReusableTokens < 16384 {
			return 12
		}
		return 2
	}
	w := newWorld(t, collapse)
	w.change = func(s *Sample, p store.Params) {
		if w.e2e(p, w.now.Sub(noon)) > 10 {
			s.Signals.WaitingSeconds, s.Signals.RunningSeconds = 40*15, 20*15
			s.Signals.WithinSLO = 0.3 * s.Signals.FirstTokens
		}
	}
	w.run(30 * time.Minute)
	shed := func() *store.Decision { return w.last(store.KindShed) }
	w.run(3 * time.Minute)
	if shed() == nil || w.inForce().MinExternalReusableTokens != store.Never {
		t.Fatalf("three minutes into the collapse %s is in force", w.inForce())
	}
	w.run(10 * time.Minute)
	if w.baseline.MinExternalReusableTokens != store.Never {
		t.Errorf("the incumbent is %s; the shed helped and should stay", w.baseline)
	}
}

// A move that turns out worse than what was before is undone.
// A new incumbent that turns out dear is rolled back, unless the requests are others:
// then their cost says nothing of the move.
func TestRollsBackOnProbation(t *testing.T) {
	for _, longer := range []float64{1, 2} {
		t.Run(fmt.Sprintf("prompts times %g", longer), func(t *testing.T) { rollsBack(t, longer) })
	}
}

func rollsBack(t *testing.T, longer float64) {
	best := store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8}
	var moved time.Duration
	w := newWorld(t, nil)
	w.e2e = func(p store.Params, at time.Duration) float64 {
		if moved > 0 && at > moved && p == best {
			return 3
		}
		return valley(best)(p, at)
	}
	w.change = func(s *Sample, _ store.Params) {
		if moved > 0 {
			s.Signals.Prompt *= longer
		}
	}
	for w.count(store.KindMove) == 0 {
		w.run(15 * time.Second)
	}
	if w.baseline != best {
		t.Fatalf("moved to %s, want %s", w.baseline, best)
	}
	moved = w.now.Sub(noon)
	w.run(4 * time.Minute)
	d := w.last(store.KindRollback)
	if rolledBack := d != nil && w.baseline == testSettings().Initial; rolledBack != (longer == 1) {
		t.Errorf("baseline %s, rollback %+v", w.baseline, d)
	}
}

func TestObserveModePublishesNothing(t *testing.T) {
	w := newWorld(t, valley(store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 8}))
	w.c.settings.Mode = Observe
	w.run(12 * time.Hour)
	if w.revision != 1 {
		t.Errorf("%d revisions were published", w.revision-1)
	}
	if n := w.count(store.KindSuggest); n == 0 || n > 60 {
		t.Errorf("%d proposals in 12 hours", n)
	}
}

func TestRememberedWorkloadIsTriedFirst(t *testing.T) {
	var m memory
	day, night := signature{7, 2, -9, -10}, signature{9, 1, -9, -10}
	m = m.remember(day, store.Params{MinExternalReusableTokens: 64, MaxWaitingRequests: 1}, noon)
	m = m.remember(night, store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 4}, noon)
	m = m.remember(day, store.Params{MinExternalReusableTokens: 128, MaxWaitingRequests: 2}, noon)
	if got := m.recall(signature{7.1, 2.1, -9, -10}); got == nil || got.MinExternalReusableTokens != 128 {
		t.Errorf("recalled %v, want the latest of that workload", got)
	}
	if got := m.recall(signature{12, 2, -9, -10}); got != nil {
		t.Errorf("recalled %v for an unknown workload", got)
	}
	for i := range 100 {
		m = m.remember(signature{float64(i), 0, 0, 0}, store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 1}, noon)
	}
	if len(m) > maxRemembered {
		t.Errorf("%d workloads remembered, above %d", len(m), maxRemembered)
	}
}
