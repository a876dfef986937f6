package tuner

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/trace"

	"github.com/kvtuner/kvtuner/store"
)

// fixture is a tuner on a memory store and a Prometheus that always shows a calm
// pool with the stored revision in force.
type fixture struct {
	t        *testing.T
	now      time.Time
	docs     *faultyDocuments
	journal  *memoryJournal
	registry *prometheus.Registry
	tuner    *Tuner
	adjust   func(*Settings)
	// uncounted pools have no cost counters.
	uncounted bool
	tracer    trace.Tracer
}

type memoryJournal struct {
	decisions []store.Decision
	err       error
	invalid   bool // evidence is refused
}

func (j *memoryJournal) Append(d store.Decision) error {
	if j.err != nil {
		return j.err
	}
	if j.invalid && d.Evidence != nil {
		return store.ErrInvalid
	}
	for _, other := range j.decisions {
		if other.ID == d.ID && other.Reason != d.Reason {
			return store.ErrConflict
		}
	}
	j.decisions = append(j.decisions, d)
	return d.Validate()
}

// faultyDocuments is a memory store whose calls fail on demand.
type faultyDocuments struct {
	*store.Memory
	loadErr, swapErr error
	saveErr          error
	afterSwap        error // of a write that succeeded
}

func (f *faultyDocuments) SaveCheckpoint(ctx context.Context, checkpoint []byte) error {
	if f.saveErr != nil {
		return f.saveErr
	}
	return f.Memory.SaveCheckpoint(ctx, checkpoint)
}

func (f *faultyDocuments) Load(ctx context.Context) (*store.Document, error) {
	if f.loadErr != nil {
		return nil, f.loadErr
	}
	return f.Memory.Load(ctx)
}

func (f *faultyDocuments) Swap(ctx context.Context, d *store.Document) error {
	if f.swapErr != nil {
		return f.swapErr
	}
	if err := f.Memory.Swap(ctx, d); err != nil {
		return err
	}
	return f.afterSwap
}

// Query answers with counters that grow by the second.
func (f *fixture) Query(_ context.Context, q string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	revision := int64(0)
	if d, err := f.docs.Memory.Load(context.Background()); err == nil {
		revision = d.Revision
	}
	rows := append(engine("a"), epp("x", float64(revision), float64(revision), float64(revision))...)
	seconds := at.Sub(noon).Seconds()
	for _, row := range rows {
		shift := at.Sub(noon).Milliseconds()
		for i := range row.Values {
			row.Values[i].Timestamp += model.Time(shift)
			name := string(row.Metric[model.MetricNameLabel])
			if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") {
				row.Values[i].Value *= model.SampleValue(1 + seconds/1e3)
			}
		}
	}
	var out model.Matrix
	for _, row := range rows {
		if f.uncounted && strings.HasPrefix(string(row.Metric[model.MetricNameLabel]), "selective_kv_cost_") {
			continue
		}
		if strings.HasPrefix(string(row.Metric[model.MetricNameLabel]), "vllm:") == strings.Contains(q, "vllm:") {
			out = append(out, row)
		}
	}
	return out, nil, nil, nil
}

func newFixture(t *testing.T, adjust func(*Settings)) *fixture {
	f := &fixture{t: t, now: noon, docs: &faultyDocuments{Memory: store.NewMemory("p")}, journal: &memoryJournal{}, adjust: adjust}
	f.restart()
	return f
}

// restart builds a new tuner on what the store and the journal hold.
func (f *fixture) restart() {
	f.t.Helper()
	s := testSettings()
	if f.adjust != nil {
		f.adjust(&s)
	}
	f.registry = prometheus.NewRegistry()
	tuner, err := New(Options{Settings: s, Prometheus: f, QueryTimeout: time.Second, Documents: f.docs,
		Journal: f.journal, Logger: slog.New(slog.DiscardHandler), Registerer: f.registry, Tracer: f.tracer})
	if err != nil {
		f.t.Fatal(err)
	}
	f.tuner = tuner
}

func (f *fixture) step() error {
	f.now = f.now.Add(15 * time.Second)
	return f.tuner.Step(context.Background(), f.now)
}

func (f *fixture) steps(n int) {
	f.t.Helper()
	for range n {
		if err := f.step(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// neverOpens is a schedule whose windows never open.
type neverOpens struct{}

func (neverOpens) Next(t time.Time) time.Time { return t.Add(365 * 24 * time.Hour) }

// beginTrial makes the controller start a trial now, whatever it thinks of it.
func (f *fixture) beginTrial() error {
	c := f.tuner.control
	before := []Sample{{From: f.now.Add(-15 * time.Second), To: f.now, State: OK, Signals: Signals{Seconds: 15, Requests: 100, E2ESeconds: 200, FirstTokens: 100, TTFTSeconds: 20, Engines: 1}}}
	p := proposal{params: store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8}, origin: fromClimb, why: "a test wants it"}
	return f.tuner.act(context.Background(), f.now, c.start(Sample{To: f.now, State: OK, Signals: before[0].Signals}, p, before))
}

func (f *fixture) startTrial() {
	f.t.Helper()
	if err := f.beginTrial(); err != nil {
		f.t.Fatal(err)
	}
	if f.document().Trial == nil {
		f.t.Fatal("no trial was published")
	}
}

func (f *fixture) document() *store.Document {
	f.t.Helper()
	d, err := f.docs.Memory.Load(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

func (f *fixture) lastDecision() store.Decision {
	f.t.Helper()
	if len(f.journal.decisions) == 0 {
		f.t.Fatal("no decision was recorded")
	}
	return f.journal.decisions[len(f.journal.decisions)-1]
}

// put writes a document as someone else would.
func (f *fixture) put(change func(*store.Document)) {
	f.t.Helper()
	d, err := f.docs.Memory.Load(context.Background())
	if errors.Is(err, store.ErrNotFound) {
		d = &store.Document{APIVersion: store.APIVersion, Pool: "p", Baseline: store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 4}}
	}
	d.Revision++
	d.UpdatedAt = f.now
	change(d)
	if err := f.docs.Memory.Swap(context.Background(), d); err != nil {
		f.t.Fatal(err)
	}
}

func TestFirstStepPublishesTheInitialParameters(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	d := f.document()
	if d.Revision != 1 || d.Baseline != testSettings().Initial || d.Trial != nil {
		t.Errorf("document %+v", d)
	}
	if k := f.lastDecision().Kind; k != store.KindAdopt {
		t.Errorf("recorded %s", k)
	}
	if s := f.tuner.Status(); !s.Ready || *s.Incumbent != d.Baseline || len(s.Decisions) != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestObserveModeWritesNothing(t *testing.T) {
	f := newFixture(t, func(s *Settings) { s.Mode = Observe })
	f.steps(200)
	if d, err := f.docs.Memory.Load(context.Background()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a document was written: %+v, %v", d, err)
	}
	if raw, err := f.docs.LoadCheckpoint(context.Background()); err == nil {
		t.Errorf("a checkpoint was written: %s", raw)
	}
}

func TestTakesOverWhatItFinds(t *testing.T) {
	f := newFixture(t, nil)
	f.put(func(*store.Document) {})
	f.steps(1)
	if d := f.document(); d.Revision != 1 || f.lastDecision().To != d.Baseline {
		t.Errorf("document %+v, decision %+v", d, f.lastDecision())
	}
}

func TestEndsATrialLeftBehind(t *testing.T) {
	f := newFixture(t, nil)
	f.put(func(d *store.Document) {
		d.Trial = &store.Trial{ID: "t1", Candidate: store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 64},
			Assignment: store.Assignment{Mode: store.AssignAll}, StartedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
	})
	f.steps(1)
	if d := f.document(); d.Trial != nil || d.Baseline.MinExternalReusableTokens != 512 {
		t.Errorf("document %+v", d)
	}
	if d := f.lastDecision(); d.Kind != store.KindReconcile || d.Revision != 2 {
		t.Errorf("decision %+v", d)
	}
}

func TestBringsTheIncumbentWithinBounds(t *testing.T) {
	f := newFixture(t, func(s *Settings) { s.Bounds.MinExternalReusableTokens.Min = 1024 })
	f.put(func(*store.Document) {})
	f.steps(1)
	if d := f.document(); d.Revision != 2 || d.Baseline.MinExternalReusableTokens != 1024 {
		t.Errorf("document %+v", d)
	}
}

func TestRespectsAnotherWriter(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(20)
	theirs := store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 2}
	f.put(func(d *store.Document) { d.Baseline, d.Trial = theirs, nil })
	f.steps(10)
	if d := f.document(); d.Baseline != theirs {
		t.Errorf("the other writer's %s was replaced by %s", theirs, d.Baseline)
	}
	found := false
	for _, d := range f.journal.decisions {
		found = found || d.Kind == store.KindDrift && d.To == theirs
	}
	if !found {
		t.Errorf("no drift was recorded: %+v", f.journal.decisions)
	}
	if s := f.tuner.Status(); *s.Incumbent != theirs {
		t.Errorf("status shows %s", s.Incumbent)
	}
}

func TestBrokenStoreDecidesNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.docs.loadErr = errors.New("api server is away")
	for range 50 {
		if err := f.step(); err == nil || !strings.Contains(err.Error(), "api server is away") {
			t.Fatalf("step: %v", err)
		}
	}
	if s := f.tuner.Status(); s.Ready || !strings.Contains(s.Error, "api server is away") {
		t.Errorf("status %+v", s)
	}
	f.docs.loadErr = nil
	f.steps(1)
	if n := len(f.journal.decisions); n != 1 {
		t.Errorf("%d decisions, want only the first", n)
	}
}

// A change that cannot be published stays decided, and is published as soon as
// it can be.
func TestUnpublishedChangeIsRetried(t *testing.T) {
	f := newFixture(t, nil)
	f.docs.swapErr = errors.New("disk is full")
	if err := f.step(); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("step: %v", err)
	}
	f.docs.swapErr = nil
	f.steps(1)
	if d := f.document(); d.Revision != 1 || d.Baseline != testSettings().Initial {
		t.Errorf("document %+v", d)
	}
	if n := len(f.journal.decisions); n != 1 {
		t.Errorf("%d records of one change", n)
	}
	if n := testutil.ToFloat64(f.tuner.metrics.publishFailures); n != 1 {
		t.Errorf("%v publish failures counted", n)
	}
}

// Without a record there is no change.
func TestUnrecordedChangeIsNotPublished(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.err = errors.New("history is read-only")
	for range 5 {
		if err := f.step(); err == nil || !strings.Contains(err.Error(), "history is read-only") {
			t.Fatalf("step: %v", err)
		}
	}
	if d, err := f.docs.Memory.Load(context.Background()); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("published without a record: %+v, %v", d, err)
	}
	f.journal.err = nil
	f.steps(1)
	if d := f.document(); d.Revision != 1 || len(f.journal.decisions) != 1 {
		t.Errorf("document %+v, records %+v", d, f.journal.decisions)
	}
}

func TestUnreadableStateIsNeverOverwritten(t *testing.T) {
	f := newFixture(t, nil)
	f.put(func(*store.Document) {})
	for _, raw := range []string{"{", `{"version": 99}`} {
		if err := f.docs.SaveCheckpoint(context.Background(), []byte(raw)); err != nil {
			t.Fatal(err)
		}
		f.restart()
		if err := f.step(); err == nil || !strings.Contains(err.Error(), "remove it to start the search afresh") {
			t.Errorf("checkpoint %s: step: %v", raw, err)
		}
		if got, _ := f.docs.LoadCheckpoint(context.Background()); string(got) != raw {
			t.Errorf("checkpoint %s became %s", raw, got)
		}
	}
}

func TestResumesFromTheCheckpoint(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	tried := store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8}
	f.tuner.control.climber.Tried[tried] = failed{times: 3, until: f.now.Add(time.Hour), aborted: true}
	f.tuner.control.cooldown = f.now.Add(30 * time.Minute)
	f.tuner.control.memory = f.tuner.control.memory.remember(signature{1, 2, 3, 4}, tried, f.now)
	if err := f.tuner.saveCheckpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	before := f.tuner.control
	f.restart()
	f.steps(1)
	after := f.tuner.control
	if got := after.climber.Tried[tried]; got.times != 3 || !got.until.Equal(before.climber.Tried[tried].until) {
		t.Errorf("tried %+v", after.climber.Tried)
	}
	if !after.cooldown.Equal(before.cooldown) || len(after.memory) != 1 {
		t.Errorf("cooldown %s, memory %v", after.cooldown, after.memory)
	}
	ids := map[string]bool{}
	for _, d := range f.journal.decisions {
		if ids[d.ID] {
			t.Errorf("decision ID %s is used twice", d.ID)
		}
		ids[d.ID] = true
	}
}

// A tuner killed after a record and before its checkpoint has used an ID that
// its successor, in the same second, does not know of.
func TestRestartWithinASecondFindsAFreeID(t *testing.T) {
	f := newFixture(t, func(s *Settings) { s.Mode = Observe })
	f.put(func(*store.Document) {})
	f.steps(1)
	f.put(func(d *store.Document) { d.Baseline.MinExternalReusableTokens = 2048 })
	f.restart()
	if err := f.tuner.Step(context.Background(), f.now); err != nil {
		t.Fatal(err)
	}
	if n := len(f.journal.decisions); n != 2 || f.journal.decisions[0].ID == f.journal.decisions[1].ID {
		t.Errorf("records %+v", f.journal.decisions)
	}
}

// A document that was removed is written again, above the revision its readers
// have seen.
func TestRemovedDocumentIsWrittenAgain(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.put(func(d *store.Document) { d.Baseline.MinExternalReusableTokens = 2048 })
	f.steps(8)
	f.docs.Memory = store.NewMemory("p")
	f.steps(1)
	if d := f.document(); d.Revision <= 2 || d.Baseline.MinExternalReusableTokens != 2048 {
		t.Errorf("document %+v", d)
	}
}

func TestLostDocumentIsRestoredFromTheCheckpoint(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.put(func(d *store.Document) { d.Baseline.MinExternalReusableTokens = 2048 })
	f.steps(2)
	raw, err := f.docs.LoadCheckpoint(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	f.docs.Memory = store.NewMemory("p")
	if err := f.docs.SaveCheckpoint(context.Background(), raw); err != nil {
		t.Fatal(err)
	}
	f.restart()
	f.steps(1)
	if d := f.document(); d.Revision != 3 || d.Baseline.MinExternalReusableTokens != 2048 {
		t.Errorf("document %+v", d)
	}
}

// A candidate in somebody else's document has nobody who would end it.
func TestForeignTrialIsEnded(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(3)
	f.put(func(d *store.Document) {
		d.Trial = &store.Trial{ID: "t1", Candidate: store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 64},
			Assignment: store.Assignment{Mode: store.AssignAll}, StartedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
	})
	f.steps(1)
	if d := f.document(); d.Trial != nil {
		t.Errorf("document %+v", d)
	}
}

// A write that succeeded and said it failed is recognised as one's own.
func TestOwnDocumentIsRecognised(t *testing.T) {
	f := newFixture(t, nil)
	f.docs.afterSwap = errors.New("connection reset")
	if err := f.step(); err == nil {
		t.Fatal("the write did not seem to fail")
	}
	f.docs.afterSwap = nil
	f.steps(3)
	for _, d := range f.journal.decisions {
		if d.Kind == store.KindDrift {
			t.Errorf("its own document was taken for someone else's: %s", d.Reason)
		}
	}
	if d := f.document(); d.Revision != 1 {
		t.Errorf("document %+v", d)
	}
}

// Harm ends first: a candidate is taken back even while nothing can be recorded.
func TestCandidateIsWithdrawnBeforeItsRecord(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.startTrial()
	f.journal.err = errors.New("disk is full")
	f.tuner.calendar = &calendar{zone: time.UTC, windows: []calendarWindow{{opens: neverOpens{}, duration: time.Minute}}}
	if err := f.step(); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("step: %v", err)
	}
	if d := f.document(); d.Trial != nil {
		t.Errorf("the candidate is still published: %+v", d.Trial)
	}
	f.journal.err = nil
	f.steps(1)
	if d := f.lastDecision(); d.Kind != store.KindAbort {
		t.Errorf("recorded %+v", d)
	}
}

// What could not be published in time is not published at all.
func TestStaleTrialIsDropped(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.docs.swapErr = errors.New("api server is away")
	if err := f.beginTrial(); err == nil {
		t.Fatal("the write succeeded")
	}
	for range 20 {
		if err := f.step(); err == nil {
			t.Fatal("the write succeeded")
		}
	}
	f.docs.swapErr = nil
	f.steps(2)
	if d := f.document(); d.Trial != nil {
		t.Errorf("five minutes late a trial was published: %+v", d.Trial)
	}
}

// The end of a trial whose next block could not be published is recorded, too.
func TestUnpublishedBlockEndsItsTrialWithARecord(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.startTrial()
	f.docs.swapErr = errors.New("disk is full")
	for f.step() == nil {
	}
	for range 5 {
		_ = f.step()
	}
	f.docs.swapErr = nil
	f.steps(1)
	if d := f.document(); d.Trial != nil || f.lastDecision().Kind != store.KindAbort || f.lastDecision().Revision != d.Revision {
		t.Errorf("revision %d: trial %+v, record %+v", d.Revision, d.Trial, f.lastDecision())
	}
}

// What candidates have run counts after a restart and a clock that went back.
func TestExposureIsNotForgotten(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.startTrial()
	for f.document().Trial.Assignment.Mode == store.AssignAll {
		f.steps(1)
	}
	shown := f.tuner.control.exposed.share(f.now)
	if shown <= 0 {
		t.Fatal("no exposure was booked")
	}
	f.restart()
	f.steps(1)
	if got := f.tuner.control.exposed.share(f.now); math.Abs(got-shown) > 1e-9 {
		t.Errorf("after a restart: %v, want %v", got, shown)
	}
	f.now = f.now.Add(-2 * time.Hour)
	f.steps(1)
	if got := f.tuner.control.exposed.share(f.now); math.Abs(got-shown) > 1e-9 {
		t.Errorf("after the clock went back: %v, want %v", got, shown)
	}
	f.now = f.now.Add(-2 * time.Hour)
	f.restart()
	f.steps(1)
	if got := f.tuner.control.exposed.share(f.now); math.Abs(got-shown) > 1e-9 {
		t.Errorf("after the clock went back while it was down: %v, want %v", got, shown)
	}
}

// A candidate runs on while its end cannot be published.
func TestExposureWhileTheStoreIsFull(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.startTrial()
	begun := f.now
	f.docs.swapErr = errors.New("disk is full")
	for f.step() == nil {
	}
	for range 8 {
		_ = f.step()
	}
	f.docs.swapErr = nil
	f.steps(1)
	want := sooner(f.now, begun.Add(f.tuner.o.Settings.trialLease())).Sub(begun).Seconds()
	if got := f.tuner.control.exposed.share(f.now) * exposureWindow.Seconds(); math.Abs(got-want) > 1 {
		t.Errorf("%v s are booked, want %v", got, want)
	}
}

// A candidate that a killed tuner left in force has run, too.
func TestExposureOfATrialLeftBehind(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(1)
	f.startTrial()
	f.now = f.now.Add(time.Minute)
	f.restart()
	f.steps(1)
	if got := f.tuner.control.exposed.share(f.now) * exposureWindow.Seconds(); got < 60 || got > 90 {
		t.Errorf("%v s are booked", got)
	}
}

func TestEvidenceThatCannotBeRecordedIsLeftOut(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.invalid = true
	f.steps(1)
	if d := f.document(); d.Revision != 1 || len(f.journal.decisions) != 1 {
		t.Errorf("document %+v, records %+v", d, f.journal.decisions)
	}
}

// The clock may jump: windows stay one interval long, and nothing breaks.
func TestClockJumps(t *testing.T) {
	f := newFixture(t, nil)
	f.steps(3)
	for _, jump := range []time.Duration{48 * time.Hour, -72 * time.Hour, time.Second} {
		f.now = f.now.Add(jump)
		if err := f.tuner.Step(context.Background(), f.now); err != nil {
			t.Errorf("after a jump of %v: %v", jump, err)
		}
		if s := f.tuner.control.lastSample; s.To.Sub(s.From) > 2*f.tuner.Interval() {
			t.Errorf("after a jump of %v the window is %v long", jump, s.To.Sub(s.From))
		}
	}
}

func TestRunStepsUntilDone(t *testing.T) {
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() { f.tuner.Run(ctx, ticks); close(done) }()
	for i := range 3 {
		ticks <- noon.Add(time.Duration(i+1) * 15 * time.Second)
	}
	cancel()
	<-done
	if d := f.document(); d.Revision != 1 {
		t.Errorf("document %+v", d)
	}
}
