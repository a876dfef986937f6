package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
)

// flushTimeout bounds the sending of what waits when the daemon stops.
const flushTimeout = 2 * time.Second

// spans takes the spans of the loops and sends them beside them: a queue of bounded
// length, and what does not fit is dropped.
type spans struct {
	provider *sdktrace.TracerProvider // nil traces nothing
	client   *http.Client
}

// newSpans connects when there is something to send.
func newSpans(c tuner.TracingConfig, log *slog.Logger) (*spans, error) {
	if c.Endpoint == "" {
		return &spans{}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing", "err", err) }))
	client, err := newSpanClient(c)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // nothing is connected to yet
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/")+"/v1/traces"), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "kvtuner"), attribute.String("service.version", readBuild().Version)),
		resource.WithFromEnv()) // the last has it
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return &spans{client: client, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&told{SpanExporter: exporter, log: log}), sdktrace.WithResource(of),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SampleRatio))),
	)}, nil
}

// tracer is nil if nothing is traced.
func (s *spans) tracer() trace.Tracer {
	if s.provider == nil {
		return nil
	}
	return s.provider.Tracer("github.com/kvtuner/kvtuner/tuner")
}

// close sends what waits, but does not wait long for it.
func (s *spans) close() {
	if s.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // what could not be sent was logged
	s.client.CloseIdleConnections()
}

// told logs the beginning and the end of an outage of the receiver, not each
// batch that is lost in it.
type told struct {
	sdktrace.SpanExporter
	log  *slog.Logger
	lost atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, batch)
	switch failed := err != nil; {
	case failed && !t.lost.Swap(true):
		t.log.Warn("spans are lost until their receiver takes them (setting tracing)", "err", err)
	case !failed && t.lost.Swap(false):
		t.log.Info("spans are taken again")
	}
	return nil
}

func newSpanClient(c tuner.TracingConfig) (*http.Client, error) {
	transport, err := config.NewRoundTripperFromConfig(config.HTTPClientConfig{
		TLSConfig: config.TLSConfig{CARef: c.CAFile}, ProxyConfig: config.ProxyConfig{ProxyFromEnvironment: true},
	}, "tracing", config.WithSecretManager(connect.Files{}))
	if err != nil {
		return nil, fmt.Errorf("tracing.caFile: %w", err)
	}
	return &http.Client{
		Transport: headerFiles{transport, c.HeaderFiles},
		Timeout:   10 * time.Second, // the exporter's own default
		// Spans and credentials go where they were meant to, and nowhere else.
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("redirected to %s, which is not followed: set tracing.endpoint to it", (&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host}).String())
		},
	}, nil
}

// headerFiles adds headers, as "Name: path", that are read at each use.
type headerFiles struct {
	http.RoundTripper
	lines []string
}

// RoundTrip implements http.RoundTripper.
func (h headerFiles) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, line := range h.lines {
		name, path, _ := strings.Cut(line, ":")
		value, err := tuner.ReadFile(strings.TrimSpace(path), tuner.MaxFile)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tracing.headerFiles: %w", err), r.Body.Close())
		}
		r.Header.Set(strings.TrimSpace(name), strings.TrimSpace(string(value)))
	}
	return h.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections lets go of those of the transport.
func (h headerFiles) CloseIdleConnections() {
	(&http.Client{Transport: h.RoundTripper}).CloseIdleConnections()
}
