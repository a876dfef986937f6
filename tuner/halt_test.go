package tuner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

func TestKillSwitchEndsATrialAndTuning(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	if err := f.beginTrial(); err != nil {
		t.Fatal(err)
	}
	before := f.document()
	f.docs.loadErr = &store.StoppedError{Where: `key "stop"`, Reason: "incident 7"}
	for range 5 {
		if err := f.step(); !errors.Is(err, store.ErrStopped) {
			t.Fatalf("a step under the kill switch: %v", err)
		}
	}
	d := f.lastDecision()
	if d.Kind != store.KindHold || !strings.Contains(d.Reason, "incident 7") || !strings.Contains(d.Reason, `key "stop"`) {
		t.Errorf("decision %+v", d)
	}
	if s := f.tuner.Status(); s.Ready || !strings.Contains(s.Error, "stopped by hand") || s.Trial != nil {
		t.Errorf("status %+v", s)
	}
	if after := f.document(); !after.Equal(before) {
		t.Errorf("written under the kill switch: %+v", after)
	}

	f.docs.loadErr = nil
	f.steps(1)
	if d := f.document(); d.Trial != nil || d.Revision != before.Revision+1 || d.Baseline != before.Baseline {
		t.Errorf("document %+v, want the trial ended", d)
	}
	if d := f.lastDecision(); d.Kind != store.KindResume || d.Revision != before.Revision+1 {
		t.Errorf("decision %+v", d)
	}
	decisions := len(f.journal.decisions)
	f.steps(3)
	if got := len(f.journal.decisions); got != decisions {
		t.Errorf("%d more decisions", got-decisions)
	}
}

// What could not be recorded when the switch was thrown is recorded later.
func TestKillSwitchIsRecordedEvenIfLate(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(2)
	f.docs.loadErr, f.journal.err = &store.StoppedError{Where: "x"}, errors.New("disk full")
	if err := f.step(); err == nil || !strings.Contains(err.Error(), "disk full") || !errors.Is(err, store.ErrStopped) {
		t.Errorf("got %v", err)
	}
	f.journal.err = nil
	if err := f.step(); !errors.Is(err, store.ErrStopped) {
		t.Errorf("got %v", err)
	}
	if d := f.lastDecision(); d.Kind != store.KindHold {
		t.Errorf("decision %+v", d)
	}
}

// The end of a trial that was published keeps its record, and the time its candidate
// ran on counts, whatever comes between.
func TestWhatIsOvertakenIsRecordedAndCounted(t *testing.T) {
	overtakers := map[string]func(f *fixture){
		"the kill switch":     func(f *fixture) { f.docs.loadErr = &store.StoppedError{Where: "x"} },
		"someone's document":  func(f *fixture) { f.put(func(d *store.Document) { d.Baseline.MaxWaitingRequests = 2 }) },
		"a document put away": func(f *fixture) { f.docs.Memory = store.NewMemory("p") },
	}
	for name, overtake := range overtakers {
		t.Run("record/"+name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.steps(10)
			f.startTrial()
			f.journal.err = errors.New("disk full")
			if _, err := f.obey(Command{Verb: Pause, Actor: "ann"}); err != nil {
				t.Fatal(err)
			}
			ended := f.document()
			if ended.Trial != nil {
				t.Fatal("the trial has not ended")
			}
			overtake(f)
			_ = f.step()
			f.docs.loadErr, f.journal.err = nil, nil
			f.steps(2)
			for _, d := range f.journal.decisions {
				if d.Kind == store.KindPause && d.Revision == ended.Revision {
					return
				}
			}
			t.Error("the end of the trial has no record")
		})
		t.Run("exposure/"+name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.steps(10)
			f.startTrial()
			f.docs.swapErr = errors.New("disk full")
			if _, err := f.obey(Command{Verb: Pause, Actor: "ann"}); err != nil {
				t.Fatal(err)
			}
			before := f.tuner.control.exposed.share(f.now)
			for range 8 {
				_ = f.step()
			}
			overtake(f)
			_ = f.step()
			f.docs.loadErr, f.docs.swapErr = nil, nil
			f.steps(1)
			if ran := f.tuner.control.exposed.share(f.now) - before; ran < 2*60/exposureWindow.Seconds() {
				t.Errorf("a share of %v was counted for the two minutes after the decision", ran)
			}
		})
	}
}

// An edit by hand need not know of revisions: it is respected, and written again
// under a new one.
func TestRespectsAnEditWithoutANewRevision(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(20)
	edited := f.document()
	edited.Baseline = store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 2}
	f.docs.Memory = store.NewMemory("p")
	if err := f.docs.Memory.Swap(context.Background(), edited); err != nil {
		t.Fatal(err)
	}
	f.steps(10)
	d := f.document()
	if d.Baseline != edited.Baseline || d.Revision != edited.Revision+1 {
		t.Errorf("document %+v, want the edit under revision %d", d, edited.Revision+1)
	}
	if r := f.lastDecision(); r.Kind != store.KindDrift || !strings.Contains(r.Reason, "someone else edited revision 1: 4096+2 is respected") {
		t.Errorf("decision %+v", r)
	}
}
