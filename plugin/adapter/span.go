package adapter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kvtuner/kvtuner/plugin"
)

// Attributes of a decision on the span of its request.
const (
	attributeAction   = attribute.Key("selective_kv.action")
	attributeReason   = attribute.Key("selective_kv.reason")
	attributeArm      = attribute.Key("selective_kv.arm")
	attributeRevision = attribute.Key("selective_kv.revision")
	// attributeTokens is missing where the evidence is.
	attributeTokens = attribute.Key("selective_kv.reusable_tokens")
)

// describe a decision on the span that the EPP has open for the request. Without
// one that records it costs nothing.
func describe(ctx context.Context, d plugin.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attributeAction.String(d.Action.String()), attributeReason.String(d.Reason.String()),
		attributeArm.String(string(d.Arm)), attributeRevision.Int64(d.Revision),
	)
	if d.Evidence {
		span.SetAttributes(attributeTokens.Int(d.ReusableTokens))
	}
}
