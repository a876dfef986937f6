package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/tuner"
)

func TestHeadersReachPrometheusOnly(t *testing.T) {
	seen := make(chan http.Header, 2)
	note := func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(note))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/moved/") {
			seen <- r.Header
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		note(w, r)
	}))
	defer server.Close()

	query := func(base string) {
		t.Helper()
		client, release, err := newPrometheus(tuner.PrometheusConfig{
			URL: base, Timeout: time.Minute, Headers: []string{"X-Scope-OrgID: a", "X-Scope-OrgID:b", "Authorization: Bearer  x:y "},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if _, _, _, err := client.Query(t.Context(), "up[1m]", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(h http.Header, orgs, authorization string) {
		t.Helper()
		if got := strings.Join(h.Values("X-Scope-OrgID"), ","); got != orgs || h.Get("Authorization") != authorization {
			t.Errorf("got %q and %q, want %q and %q", got, h.Get("Authorization"), orgs, authorization)
		}
	}
	query(server.URL)
	check(<-seen, "a,b", "Bearer  x:y")
	query(server.URL + "/moved")
	check(<-seen, "a,b", "Bearer  x:y")
	check(<-seen, "", "")
}

func TestHeadersAreNotSentUnencrypted(t *testing.T) {
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
		transport := &headerTransport{
			next: roundTrip(func(r *http.Request) (*http.Response, error) {
				got = r.Header.Get("X-Token")
				return &http.Response{Body: http.NoBody}, nil
			}),
			base: base, headers: http.Header{"X-Token": {"secret"}},
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

func TestAnswerOfPrometheusIsBounded(t *testing.T) {
	transport := &headerTransport{
		next: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(zeros{})}, nil
		}),
		base: &url.URL{},
	}
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
	_, err := parseHeaders([]string{"hunter2", "X Y: hunter2", ": hunter2", "X-Ok: fine", "X-Token: a\x00hunter2"})
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
