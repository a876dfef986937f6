package tuner

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kvtuner/kvtuner/store"
)

// A turn of the loop is one span, with one for each of its parts below it.
const (
	spanStep    = "kvtuner.step"
	spanObserve = "kvtuner.observe"
	spanDecide  = "kvtuner.decide"
	spanPublish = "kvtuner.publish" // of records, too: in mode observe there is nothing else
)

// tracer opens the spans of one pool.
type tracer struct {
	trace.Tracer
	pool trace.SpanStartEventOption
}

// newTracer takes nil for a tracer that records nothing.
func newTracer(t trace.Tracer, s Settings) tracer {
	if t == nil {
		t = noop.Tracer{}
	}
	return tracer{t, trace.WithAttributes(attribute.String("kvtuner.pool", s.Name), attribute.String("kvtuner.mode", string(s.Mode)))}
}

func (t tracer) start(ctx context.Context, name string) (context.Context, trace.Span) {
	return t.Tracer.Start(ctx, name, t.pool)
}

// end a span with what became of it.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// describe a decision on spans. It has no ID before its record is numbered, and
// no verdict unless it ends a trial.
func describe(d *store.Decision, spans ...trace.Span) {
	if d == nil {
		return
	}
	attributes := []attribute.KeyValue{
		attribute.String("kvtuner.decision.kind", string(d.Kind)),
		attribute.String("kvtuner.from", d.From.String()),
		attribute.String("kvtuner.to", d.To.String()),
	}
	optional := func(key, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	optional("kvtuner.decision.id", d.ID)
	optional("kvtuner.trial", d.Trial)
	optional("kvtuner.actor", d.Actor)
	optional("kvtuner.candidate", candidateOf(d))
	if d.Evidence != nil {
		optional("kvtuner.verdict", d.Evidence.Verdict)
	}
	for _, s := range spans {
		s.SetAttributes(attributes...)
	}
}

// candidateOf a decision are the parameters that it is about, if not the incumbent:
// those of the trial it ends, else those it goes over to.
func candidateOf(d *store.Decision) string {
	if d.Evidence != nil {
		for _, arm := range d.Evidence.Arms {
			if arm.Arm == store.ArmCandidate {
				return arm.Params.String()
			}
		}
	}
	if d.To == d.From {
		return ""
	}
	return d.To.String()
}

// tellRevision of a document that was written.
func tellRevision(ctx context.Context, revision int64) {
	trace.SpanFromContext(ctx).AddEvent("document written", trace.WithAttributes(attribute.Int64("kvtuner.revision", revision)))
}
