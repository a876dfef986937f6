package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type pool struct{ status tuner.Status }

func (p *pool) Status() tuner.Status { return p.status }

type statuses struct {
	texts []string
	err   error
}

func (s *statuses) SaveStatus(_ context.Context, text string) error {
	if s.err == nil {
		s.texts = append(s.texts, text)
	}
	return s.err
}

func TestReportIsReadable(t *testing.T) {
	incumbent := store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	p := &pool{tuner.Status{
		Pool: "qwen", Mode: tuner.Enforce, At: noon, Ready: true, Doing: "trial: comparing", Incumbent: &incumbent, Revision: 12,
		Trial:     &tuner.TrialStatus{ID: "t1", Candidate: store.Params{MinExternalReusableTokens: store.Never}, Why: "the curves say so"},
		Decisions: []store.Decision{{Time: noon, Kind: store.KindTrial, Reason: "trying inf+0: \"colons\" and all"}},
	}}
	s := &statuses{}
	r := &Reporter{Pool: p, Statuses: s, Identity: "kvtuner-0_x", Logger: slog.New(slog.DiscardHandler)}
	if err := r.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := `# Written by kvtuner, for people. Nothing reads it.
pool: qwen
mode: enforce
tuner: kvtuner-0_x
doing: 'trial: comparing'
incumbent: 1024+8
revision: 12
trial:
    id: t1
    candidate: inf+0
    why: the curves say so
conditions:
    - type: Ready
      status: "True"
      since: 2026-11-30T12:00:00Z
    - type: Paused
      status: "False"
      since: 2026-11-30T12:00:00Z
lastDecision:
    time: 2026-11-30T12:00:00Z
    kind: trial
    reason: 'trying inf+0: "colons" and all'
`
	if diff := cmp.Diff([]string{want}, s.texts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Only what has changed is written, and a condition keeps the time since when it
// holds.
func TestReportOnlyOfChanges(t *testing.T) {
	p := &pool{}
	s := &statuses{}
	r := &Reporter{Pool: p, Statuses: s, Logger: slog.New(slog.DiscardHandler)}
	report := func(change func(*tuner.Status)) {
		t.Helper()
		change(&p.status)
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	report(func(*tuner.Status) {}) // before the first step there is nothing to say
	for n := range 5 {
		report(func(s *tuner.Status) { s.At, s.Ready = noon.Add(time.Duration(n)*time.Minute), true })
	}
	if len(s.texts) != 1 {
		t.Fatalf("%d writes, want one", len(s.texts))
	}
	report(func(s *tuner.Status) { s.At, s.Error = noon.Add(time.Hour), "stopped by hand" })
	last := s.texts[len(s.texts)-1]
	if len(s.texts) != 2 || !strings.Contains(last, "since: 2026-11-30T13:00:00Z\n      message: stopped by hand") || !strings.Contains(last, "since: 2026-11-30T12:00:00Z") {
		t.Errorf("%d writes, the last:\n%s", len(s.texts), last)
	}
	s.err = errors.New("away")
	p.status.Error = ""
	if err := r.Report(t.Context()); err == nil {
		t.Error("a failure is not told")
	}
	s.err = nil
	report(func(*tuner.Status) {})
	if len(s.texts) != 3 {
		t.Errorf("%d writes, want what failed written again", len(s.texts))
	}
	s.err = store.ErrNotFound
	report(func(s *tuner.Status) { s.Doing = "resting" })
}

type journal struct {
	kept []store.Decision
	err  error
}

func (j *journal) Append(d store.Decision) error {
	j.kept = append(j.kept, d)
	return j.err
}

func TestEventsFollowTheRecord(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	inner := &journal{}
	e := &Events{recorder: recorder}
	j := e.Journal(inner, func() *corev1.ObjectReference { return &corev1.ObjectReference{} })
	for _, k := range store.Kinds() {
		if err := j.Append(store.Decision{Kind: k, Reason: "because"}); err != nil {
			t.Fatal(err)
		}
		kind, severe, _ := strings.Cut(<-recorder.Events, " ")
		warns := map[store.Kind]bool{store.KindAbort: true, store.KindShed: true, store.KindHold: true, store.KindDrift: true, store.KindRollback: true}
		if (kind == "Warning") != warns[k] || !strings.HasSuffix(severe, " because") || !strings.HasPrefix(severe, "Tuning") {
			t.Errorf("%s: got %s %s", k, kind, severe)
		}
	}
	inner.err = errors.New("disk full")
	if err := j.Append(store.Decision{Kind: store.KindMove}); err == nil || len(recorder.Events) != 0 {
		t.Errorf("what was not recorded was told: %v", err)
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("ä", maxMessage)
	if got := shorten(long); len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-10:])
	}
	if got := shorten("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}
