package connect

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/tuner"
)

func TestHeadersAreNotSentElsewhere(t *testing.T) {
	base, err := url.Parse("https://prometheus.example")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"https://prometheus.example/x":     "secret",
		"http://prometheus.example/x":      "",
		"https://prometheus.example:444/x": "",
		"https://example/x":                "",
	} {
		var got string
		transport := &headers{
			next: roundTrip(func(r *http.Request) (*http.Response, error) {
				got = r.Header.Get("X-Token")
				return &http.Response{Body: http.NoBody}, nil
			}),
			base: base, fixed: []pair{{"X-Token", "secret"}},
		}
		request := httptest.NewRequest(http.MethodGet, target, nil)
		if _, err := transport.RoundTrip(request); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: sent %q, want %q", target, got, want)
		}
		if request.Header.Get("X-Token") != "" {
			t.Errorf("%s: the caller's request was changed", target)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnswerIsBounded(t *testing.T) {
	transport := &answers{next: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: io.NopCloser(zeros{})}, nil
	})}
	response, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, response.Body); err == nil || n > maxAnswerBytes {
		t.Errorf("read %d bytes, %v; want an error at %d", n, err, maxAnswerBytes)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestBadHeadersAreAllNamedWithoutTheirValues(t *testing.T) {
	_, err := parsePairs("prometheus.headers", []string{"hunter2", "X Y: hunter2", ": hunter2", "X-Ok: fine", "X-Token: a\x00hunter2"})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, says := range []string{"headers[0]", "headers[1]", "headers[2]", "headers[4]", "X-Token"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not name %s", err, says)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "headers[3]") {
		t.Errorf("shows a value, or a good header: %v", err)
	}
}

// Pools ask at the same time through one transport. Three headers leave room behind
// them for a fourth, which queries must not share.
func TestHeadersOfConcurrentQueries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	fixed, err := parsePairs("prometheus.headers", []string{"A: 1", "B: 2", "C: 3"})
	if err != nil {
		t.Fatal(err)
	}
	transport := &headers{
		next: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("C") != "3" || r.Header.Get("X-Token") != "secret" {
				t.Errorf("sent %v", r.Header)
			}
			return &http.Response{Body: http.NoBody}, nil
		}),
		base: &url.URL{Scheme: "http", Host: "example.com"}, fixed: fixed, files: []pair{{"X-Token", file}},
	}
	var queries sync.WaitGroup
	for range 8 {
		queries.Go(func() {
			if _, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://example.com/", nil)); err != nil {
				t.Error(err)
			}
		})
	}
	queries.Wait()
}

// A million series, labels or values are not read to their end: what they would
// take in memory is far more than their bytes.
func TestAnswersOfTooManyParts(t *testing.T) {
	for what, part := range map[string]string{
		"series":     `{}`,
		"labels":     `{"metric":{"":""` + strings.Repeat(`,"":""`, 100) + `}}`,
		"and values": `{"values":[[0,"1"]` + strings.Repeat(`,[0,"1"]`, 100) + `]}`,
	} {
		t.Run(what, func(t *testing.T) {
			const chunk = 1 << 20
			sent, parts := 0, strings.Repeat(part+",", chunk/len(part))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, err := io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[`)
				for ; err == nil && sent < 40*chunk; sent += chunk {
					_, err = io.WriteString(w, parts)
				}
				_, _ = io.WriteString(w, "{}]}}")
			}))
			defer server.Close()
			client, err := New(tuner.PrometheusConfig{URL: server.URL, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if value, _, _, err := client.Query(t.Context(), "up", time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("got %T, %v; want a refusal", value, err)
			}
		})
	}
}
