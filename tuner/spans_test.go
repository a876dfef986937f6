package tuner

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kvtuner/kvtuner/store"
)

// recorded is a span as a backend shows it.
type recorded struct {
	name, parent string
	attributes   map[string]string
	events       []string
	status       codes.Code
}

// traced is a fixture whose spans are kept.
func traced(t *testing.T, adjust func(*Settings)) (*fixture, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	f := newFixture(t, adjust)
	f.tracer = provider.Tracer("test")
	f.restart()
	return f, exporter
}

// spans recorded since the last call, by name.
func spans(exporter *tracetest.InMemoryExporter) map[string]recorded {
	stubs := exporter.GetSpans()
	exporter.Reset()
	names := map[[8]byte]string{}
	for _, s := range stubs {
		names[s.SpanContext.SpanID()] = s.Name
	}
	all := map[string]recorded{}
	for _, s := range stubs {
		r := recorded{name: s.Name, parent: names[s.Parent.SpanID()], attributes: map[string]string{}, status: s.Status.Code}
		for _, a := range s.Attributes {
			r.attributes[string(a.Key)] = a.Value.String()
		}
		for _, e := range s.Events {
			r.events = append(r.events, e.Name)
		}
		all[s.Name] = r
	}
	return all
}

func TestAStepIsASpan(t *testing.T) {
	f, exporter := traced(t, nil)
	f.steps(1) // takes over
	exporter.Reset()
	f.steps(1)
	got := spans(exporter)
	pool := map[string]string{"kvtuner.pool": "p", "kvtuner.mode": "enforce"}
	observed := map[string]string{"kvtuner.pool": "p", "kvtuner.mode": "enforce", "kvtuner.sample": "ok"}
	want := map[string]recorded{
		spanStep:    {name: spanStep, attributes: pool},
		spanObserve: {name: spanObserve, parent: spanStep, attributes: observed},
		spanDecide:  {name: spanDecide, parent: spanStep, attributes: pool},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(recorded{})); diff != "" {
		t.Error(diff)
	}
}

// Whoever searches for a decision finds the step that took it, and the document
// that it wrote.
func TestADecisionIsOnItsSpans(t *testing.T) {
	f, exporter := traced(t, nil)
	f.steps(1)
	d := f.journal.decisions[0]
	got := spans(exporter)
	for _, name := range []string{spanStep, spanPublish} {
		a := got[name].attributes
		if a["kvtuner.decision.id"] != d.ID || a["kvtuner.decision.kind"] != string(store.KindAdopt) || a["kvtuner.to"] != d.To.String() {
			t.Errorf("%s has %v, want decision %s", name, a, d.ID)
		}
	}
	if diff := cmp.Diff([]string{"document written"}, got[spanPublish].events); diff != "" {
		t.Error(diff)
	}
}

func TestATrialIsOnItsSpans(t *testing.T) {
	f, exporter := traced(t, nil)
	f.steps(1)
	f.startTrial()
	exporter.Reset()
	receipt, err := f.tuner.Obey(t.Context(), f.now, Command{Verb: Pause, Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	a := spans(exporter)[spanPublish].attributes
	want := map[string]string{
		"kvtuner.pool": "p", "kvtuner.mode": "enforce", "kvtuner.decision.kind": "pause", "kvtuner.decision.id": receipt.Decision.ID,
		"kvtuner.actor": "ann", "kvtuner.trial": receipt.Decision.Trial, "kvtuner.verdict": string(cancelled),
		"kvtuner.from": "1024+8", "kvtuner.to": "1024+8",
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
}

func TestAFailureIsOnItsSpans(t *testing.T) {
	f, exporter := traced(t, nil)
	f.docs.swapErr = errors.New("disk full")
	if err := f.step(); err == nil {
		t.Fatal("the step succeeded")
	}
	got := spans(exporter)
	for _, name := range []string{spanStep, spanPublish} {
		if got[name].status != codes.Error {
			t.Errorf("%s has status %v", name, got[name].status)
		}
	}
}

func TestCandidateOfADecision(t *testing.T) {
	incumbent, candidate := paramsOf(1024, 8), paramsOf(4096, 8)
	arms := &store.Evidence{Arms: []store.ArmSummary{{Arm: store.ArmBaseline, Params: incumbent}, {Arm: store.ArmCandidate, Params: candidate}}}
	for name, tc := range map[string]struct {
		decision store.Decision
		want     string
	}{
		"trial":         {store.Decision{Kind: store.KindTrial, From: incumbent, To: candidate}, "4096+8"},
		"keep":          {store.Decision{Kind: store.KindKeep, From: incumbent, To: incumbent, Evidence: arms}, "4096+8"},
		"hold has none": {store.Decision{Kind: store.KindHold, From: incumbent, To: incumbent}, ""},
	} {
		if got := candidateOf(&tc.decision); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func paramsOf(tokens store.Tokens, waiting int) store.Params {
	return store.Params{MinExternalReusableTokens: tokens, MaxWaitingRequests: waiting}
}
