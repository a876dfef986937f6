package tuner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
)

func (f *fixture) obey(o Command) (Receipt, error) {
	o.Actor = "alice"
	return f.tuner.Obey(context.Background(), f.now, o)
}

func (f *fixture) mustObey(o Command) Receipt {
	f.t.Helper()
	r, err := f.obey(o)
	if err != nil || r.Pending != "" {
		f.t.Fatalf("%s: %v, pending %q", o.Verb, err, r.Pending)
	}
	return r
}

func TestPauseWithdrawsTheCandidateAtOnce(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.startTrial()
	r := f.mustObey(Command{Verb: Pause, For: time.Hour, Reason: "incident 7"})
	if d := f.document(); d.Trial != nil || d.Revision != r.Decision.Revision {
		t.Errorf("document %+v, record %+v", d, r.Decision)
	}
	if got := f.lastDecision(); got.Kind != store.KindPause || got.Actor != "alice" || got.Evidence == nil {
		t.Errorf("record %+v", got)
	}
	s := f.tuner.Status()
	if s.Paused == nil || s.Paused.Actor != "alice" || !s.Ready || !strings.HasPrefix(s.Doing, "paused by alice until") {
		t.Errorf("status %+v", s)
	}
}

func TestPauseSurvivesARestart(t *testing.T) {
	for _, mode := range []Mode{Observe, Propose, Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			f := newFixture(t, func(s *Settings) { s.Mode = mode })
			f.steps(10)
			f.mustObey(Command{Verb: Pause, For: 2 * time.Hour})
			f.restart()
			f.steps(10)
			if s := f.tuner.Status(); s.Paused == nil || s.Paused.Actor != "alice" {
				t.Fatalf("after a restart: %+v", s)
			}
			f.mustObey(Command{Verb: Resume})
			f.restart()
			f.steps(10)
			if s := f.tuner.Status(); s.Paused != nil {
				t.Errorf("after a resume and a restart: %s", s.Paused)
			}
		})
	}
}

// A pause given in observe mode holds when the pool is enforced, and leaves the
// rest of another tuner's checkpoint alone.
func TestPauseInObserveModeLeavesTheCheckpointAlone(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	theirs, err := f.docs.LoadCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	enforce := f.adjust
	f.adjust = func(s *Settings) { s.Mode = Observe }
	f.restart()
	f.steps(20)
	if same, _ := f.docs.LoadCheckpoint(t.Context()); string(same) != string(theirs) {
		t.Errorf("observing wrote a checkpoint:\n%s", same)
	}
	f.mustObey(Command{Verb: Pause})
	f.adjust = enforce
	f.restart()
	f.steps(1)
	if f.tuner.Status().Paused == nil {
		t.Error("the pause was lost")
	}
	f.mustObey(Command{Verb: Resume})
	if k, _, err := f.tuner.loadCheckpoint(t.Context()); err != nil || k.Revision != f.document().Revision {
		t.Errorf("checkpoint %+v, %v", k, err)
	}
}

// Beside a tuner that writes, the checkpoint is not the observer's to pause.
func TestPauseBesideATunerThatWrites(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	theirs, err := f.docs.LoadCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.adjust = func(s *Settings) { s.Mode = Observe }
	f.restart()
	f.steps(2)
	f.put(func(d *store.Document) { d.Baseline = goodTokens })
	f.steps(1)
	f.mustObey(Command{Verb: Pause})
	f.steps(2)
	if same, _ := f.docs.LoadCheckpoint(t.Context()); string(same) != string(theirs) {
		t.Errorf("an observer wrote the checkpoint:\n%s", same)
	}
	if f.tuner.Status().Paused == nil {
		t.Error("the observer is not paused")
	}
}

// An observer who cannot write says that a pause will not last, and goes on.
func TestPauseOfAnObserverThatCannotWrite(t *testing.T) {
	f := newFixture(t, func(s *Settings) { s.Mode = Observe })
	f.steps(3)
	f.docs.saveErr = errors.New("read-only")
	if r, err := f.obey(Command{Verb: Pause}); err != nil || !strings.Contains(r.Pending, "read-only") {
		t.Fatalf("%v, pending %q", err, r.Pending)
	}
	f.steps(2)
	if s := f.tuner.Status(); !s.Ready || s.Paused == nil || s.LastState != OK {
		t.Errorf("status %+v", s)
	}
	f.docs.saveErr = nil
	f.steps(1)
	f.restart()
	f.steps(1)
	if f.tuner.Status().Paused == nil {
		t.Error("the pause was not saved once that was possible")
	}
}

func TestKnownGoodSurvivesARestart(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.put(func(d *store.Document) { d.Baseline = goodTokens })
	f.steps(1)
	f.restart()
	f.steps(1)
	if s := f.tuner.Status(); s.KnownGood == nil || *s.KnownGood != testSettings().Initial {
		t.Fatalf("known good: %v", s.KnownGood)
	}
	f.mustObey(Command{Verb: Revert, Target: ToKnownGood})
	if d := f.document(); d.Baseline != testSettings().Initial {
		t.Errorf("document %+v", d)
	}
}

func TestCommandsTakeOverThePool(t *testing.T) {
	f := newFixture(t, nil)
	f.mustObey(Command{Verb: Pause})
	if d := f.document(); d.Baseline != testSettings().Initial || len(f.journal.decisions) != 2 {
		t.Errorf("document %+v, %d records", d, len(f.journal.decisions))
	}
}

func TestCommandMeetsAnotherWriter(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(3)
	f.put(func(d *store.Document) { d.Baseline = goodTokens })
	if r := f.mustObey(Command{Verb: Pause}); r.Decision.To != goodTokens || f.document().Baseline != goodTokens {
		t.Errorf("paused at %s, document has %s", r.Decision.To, f.document().Baseline)
	}
}

func TestImpossibleAndRefusedCommandsChangeNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(3)
	records, revision := len(f.journal.decisions), f.document().Revision
	if _, err := f.obey(Command{Verb: "explode"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("impossible: %v", err)
	}
	if _, err := f.obey(Command{Verb: Resume}); !errors.Is(err, ErrRefused) {
		t.Errorf("refused: %v", err)
	}
	if len(f.journal.decisions) != records || f.document().Revision != revision {
		t.Error("something was recorded or published")
	}
}

// A store that does not take writes delays a command, and its record says so.
func TestCommandThatCannotBePublishedIsRetried(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.startTrial()
	f.docs.swapErr = errors.New("disk full")
	r, err := f.obey(Command{Verb: Pause})
	if err != nil || !strings.Contains(r.Pending, "disk full") {
		t.Fatalf("receipt %+v, %v", r, err)
	}
	if err := f.step(); err == nil {
		t.Error("a step got past the pending command")
	}
	f.docs.swapErr = nil
	f.steps(2)
	if d := f.document(); d.Trial != nil || f.lastDecision().Kind != store.KindPause {
		t.Errorf("document %+v, last record %+v", d, f.lastDecision())
	}
}

// A candidate's block that waits for the store is never published after a command,
// even one that failed.
func TestCommandDropsAnUnpublishedCandidate(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.docs.swapErr = errors.New("disk full")
	if err := f.beginTrial(); err == nil {
		t.Fatal("published to a full disk")
	}
	if _, err := f.obey(Command{Verb: Pause}); err == nil || !strings.Contains(err.Error(), "cannot take a command") {
		t.Errorf("got %v", err)
	}
	f.docs.swapErr = nil
	f.steps(2)
	if d := f.document(); d.Trial != nil {
		t.Errorf("the candidate was published: %+v", d)
	}
}

// stuck is a Prometheus that does not answer before release is closed.
type stuck struct {
	*fixture
	release chan struct{}
}

func (s stuck) Query(ctx context.Context, q string, at time.Time, opts ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	<-s.release
	return s.fixture.Query(ctx, q, at, opts...)
}

// A command does not wait for Prometheus, and what a step has seen before it
// decides nothing.
func TestCommandDoesNotWaitForPrometheus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.steps(10)
		f.startTrial()
		s := stuck{f, make(chan struct{})}
		f.tuner.observer.prom = s
		stepped := make(chan error)
		go func() { stepped <- f.tuner.Step(context.Background(), f.now.Add(15*time.Second)) }()
		synctest.Wait()
		f.mustObey(Command{Verb: Pause})
		if f.document().Trial != nil {
			t.Error("the candidate is still in force")
		}
		records := len(f.journal.decisions)
		close(s.release)
		if err := <-stepped; err != nil {
			t.Error(err)
		}
		if len(f.journal.decisions) != records || f.document().Trial != nil {
			t.Errorf("the step went on with what it had seen: %+v", f.lastDecision())
		}
	})
}

func TestCommandGivesUpWaitingForItsTurn(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.tuner.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.tuner.Obey(ctx, f.now, Command{Verb: Pause, Actor: "alice"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTimeline(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.startTrial()
	f.steps(2)
	l := f.tuner.Timeline()
	if len(l) != 12 || l[0].Arm != store.ArmBaseline || l[11].Arm != store.ArmCandidate || l[11].Params.String() != "4096+8" || l[5].Cost <= 0 {
		t.Errorf("timeline %+v", l)
	}
	for range 2*timelineLength + 10 {
		f.tuner.draw(Sample{To: f.now})
	}
	if n := len(f.tuner.Timeline()); n != timelineLength {
		t.Errorf("%d points are kept", n)
	}
}
