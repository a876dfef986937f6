package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

// Another service that answers every question with JSON has obeyed no command, and
// has no pools that could be ready.
func TestAnswersOfAnotherService(t *testing.T) {
	for _, body := range []string{`{}`, `null`, `{"status":"success","data":{"result":[]}}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer other.Close()
		for _, line := range []string{"status", "history", "explain last", "explain x", "pause", "pause --pool p", "approve", "approve --pool p --proposal x"} {
			var stdout, stderr bytes.Buffer
			code := execute(t.Context(), append(strings.Fields(line), "--address", other.URL), &stdout, &stderr)
			if code != exitFailure || stdout.Len() > 0 || !strings.Contains(stderr.String(), "the answer is not kvtuner's") {
				t.Errorf("%s, answered %s: exit code %d, %q, %q", line, body, code, &stdout, &stderr)
			}
		}
	}
}

// A broken Prometheus leaves most checks without an answer: why is said once.
func TestSkippedChecksAreToldTogether(t *testing.T) {
	skipped := func(check string) tuner.Finding {
		return tuner.Finding{Check: check, Level: tuner.Skipped, Found: "not known: no answer"}
	}
	var out bytes.Buffer
	writeReport(&out, preflight.Report{Pool: "p", Findings: []tuner.Finding{
		{Check: "prometheus", Level: tuner.Failure, Found: "no answer"}, skipped("clock"), skipped("engines"), skipped("slo"),
		{Check: "store", Level: tuner.Fine, Found: "fine"}, skipped("sample"),
	}}, widest)
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := `  FAIL  prometheus      no answer
  -     clock           not known: no answer
  -     the same        engines, slo
  ok    store           fine
  -     sample          not known: no answer
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
