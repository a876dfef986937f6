package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/kvtuner/kvtuner/tuner"
)

// tracedConfig has no Prometheus: steps fail, and are spans all the same.
func tracedConfig(t *testing.T, tracing string) string {
	dir := t.TempDir()
	return `
listen: 127.0.0.1:0
prometheus: {url: "http://127.0.0.1:1"}
history: {path: ` + filepath.Join(dir, "history.db") + `}
tracing: ` + tracing + `
pools: [{name: traced, store: {file: ` + filepath.Join(dir, "p.json") + `}}]
`
}

const tracedInterval = 15 * time.Second

// Spans reach an OTLP receiver, with the headers of files and what OTEL_ variables say.
func TestSpansAreSent(t *testing.T) {
	checkLeaks(t)
	t.Setenv("OTEL_SERVICE_NAME", "kvtuner-of-team-a")
	got := make(chan *http.Request, 10)
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r
		bodies <- string(body)
	}))
	defer receiver.Close()
	token := writeFile(t, "token", "Bearer s3cret\n")
	r := start(t, tracedConfig(t, `{endpoint: "`+receiver.URL+`/base/", headerFiles: ["Authorization: `+token+`"]}`))
	r.step(tracedInterval, time.Now(), time.Now())
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	sent := <-got
	if sent.URL.Path != "/base/v1/traces" || sent.Header.Get("Authorization") != "Bearer s3cret" {
		t.Errorf("sent to %s with %v", sent.URL, sent.Header)
	}
	body := <-bodies
	for _, want := range []string{"kvtuner.step", "kvtuner.observe", "kvtuner.publish", "traced", "kvtuner-of-team-a"} {
		if !strings.Contains(body, want) {
			t.Errorf("the spans lack %q", want)
		}
	}
}

// A receiver that hangs delays no step.
func TestAHangingReceiverDelaysNoStep(t *testing.T) {
	checkLeaks(t)
	hang := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer receiver.Close()
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	r := start(t, tracedConfig(t, `{endpoint: "`+receiver.URL+`"}`))
	for range 20 { // many times what the queue holds
		r.step(tracedInterval, time.Now())
	}
	close(hang)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

type brokenExporter struct{ err error }

func (e *brokenExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return e.err }
func (e *brokenExporter) Shutdown(context.Context) error                             { return nil }

// An outage is two lines in the log, however long it lasts.
func TestAnOutageOfTheReceiverIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	exporter := &brokenExporter{errors.New("connection refused")}
	e := &told{SpanExporter: exporter, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, exporter.err = range []error{exporter.err, exporter.err, nil, nil} {
		if err := e.ExportSpans(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if lost, back := strings.Count(log.String(), "spans are lost"), strings.Count(log.String(), "taken again"); lost != 1 || back != 1 {
		t.Errorf("told %d and %d times:\n%s", lost, back, &log)
	}
}

// A certificate authority is read as carefully as any other file.
func TestSpanClientAuthority(t *testing.T) {
	client, err := newSpanClient(tuner.TracingConfig{CAFile: os.DevNull})
	if err == nil {
		defer client.CloseIdleConnections()
		_, err = client.Get("https://127.0.0.1:1")
	}
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v, want \"not a regular file\"", err)
	}
}

// Credentials do not follow a redirect, and a file that is not there is named.
func TestSpanClient(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("redirect followed") }))
	defer elsewhere.Close()
	receiver := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer receiver.Close()
	token := writeFile(t, "token", "s3cret")
	for name, tc := range map[string]struct{ file, says string }{
		"redirect": {token, "set tracing.endpoint"},
		"no file":  {token + "-gone", "tracing.headerFiles"},
		"a device": {os.DevNull, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newSpanClient(tuner.TracingConfig{HeaderFiles: []string{"Authorization: " + tc.file}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			_, err = client.Post(receiver.URL, "text/plain", strings.NewReader("spans"))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}
