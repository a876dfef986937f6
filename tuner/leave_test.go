package tuner

import (
	"errors"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

func TestLeavingEndsATrial(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	if err := f.beginTrial(); err != nil {
		t.Fatal(err)
	}
	before := f.document()
	if err := f.tuner.Leave(t.Context(), f.now, "its object is gone"); err != nil {
		t.Fatal(err)
	}
	after := f.document()
	if after.Trial != nil || after.Baseline != before.Baseline || after.Revision != before.Revision+1 {
		t.Errorf("left %+v, want the trial of %+v ended", after, before)
	}
	if d := f.lastDecision(); d.Kind != store.KindAbort || d.Trial != before.Trial.ID || d.Revision != after.Revision {
		t.Errorf("decision %+v", d)
	}
	decisions := len(f.journal.decisions)
	if err := f.tuner.Leave(t.Context(), f.now, "again"); err != nil || len(f.journal.decisions) != decisions {
		t.Errorf("leaving without a trial: %v, %d more decisions", err, len(f.journal.decisions)-decisions)
	}
}

func TestLeavingTouchesNoPoolThatWasNotTakenOver(t *testing.T) {
	f := newFixture(t, nil)
	if err := f.tuner.Leave(t.Context(), f.now, "x"); err != nil || len(f.journal.decisions) != 0 {
		t.Errorf("%v, decisions %v", err, f.journal.decisions)
	}
}

func TestLeavingWritesNoRemovedDocumentAgain(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	f.docs.loadErr = store.ErrNotFound
	decisions := len(f.journal.decisions)
	if err := f.tuner.Leave(t.Context(), f.now, "x"); err != nil || len(f.journal.decisions) != decisions {
		t.Errorf("%v, %d more decisions", err, len(f.journal.decisions)-decisions)
	}
}

func TestLeavingSaysThatTheStoreFails(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(10)
	if err := f.beginTrial(); err != nil {
		t.Fatal(err)
	}
	f.docs.loadErr = errors.New("no route")
	if err := f.tuner.Leave(t.Context(), f.now, "x"); !errors.Is(err, f.docs.loadErr) {
		t.Errorf("got %v", err)
	}
}
