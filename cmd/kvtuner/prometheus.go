package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"golang.org/x/net/http/httpguts"

	"github.com/kvtuner/kvtuner/tuner"
)

// maxAnswerBytes bounds an answer of Prometheus: a sample of a pool of a
// thousand engines is below 16 MiB.
const maxAnswerBytes = 64 << 20

// newPrometheus returns a client of the configured server, and what releases its
// connections. It connects when it is first asked.
func newPrometheus(c tuner.PrometheusConfig) (client promv1.API, release func(), err error) {
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, nil, errors.New("prometheus.url: is not a URL")
	}
	headers, err := parseHeaders(c.Headers)
	if err != nil {
		return nil, nil, err
	}
	transport := newTransport(c.Timeout)
	raw, err := api.NewClient(api.Config{
		Address:      c.URL,
		RoundTripper: &headerTransport{next: transport, base: base, headers: headers},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("prometheus.url: %w", err)
	}
	return promv1.NewAPI(raw), transport.CloseIdleConnections, nil
}

// parseHeaders reads "Name: value" lines. Errors never show a value: it may be a
// secret.
func parseHeaders(lines []string) (http.Header, error) {
	headers := http.Header{}
	var errs []error
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !found || !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("prometheus.headers[%d]: the name is not that of an HTTP header; write \"Name: value\"", i))
		case !httpguts.ValidHeaderFieldValue(value):
			errs = append(errs, fmt.Errorf("prometheus.headers[%d]: the value of %s has characters that no HTTP header may have", i, name))
		default:
			headers.Add(name, value)
		}
	}
	return headers, errors.Join(errs...)
}

// newTransport gives up on a server that does not connect or answer in time;
// each query has its own deadline besides.
func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   timeout,
		ResponseHeaderTimeout: timeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   8,
		ForceAttemptHTTP2:     true,
	}
}

// headerTransport adds the configured headers to requests for the configured
// server. A redirect elsewhere goes without: they may be credentials.
type headerTransport struct {
	next    http.RoundTripper
	base    *url.URL
	headers http.Header
}

// RoundTrip implements http.RoundTripper.
func (t *headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == t.base.Host && (r.URL.Scheme == t.base.Scheme || r.URL.Scheme == "https") {
		r = r.Clone(r.Context())
		for name, values := range t.headers {
			r.Header[name] = values
		}
		if host := t.headers.Get("Host"); host != "" {
			r.Host = host
		}
	}
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswerBytes)
	}
	return resp, err
}
