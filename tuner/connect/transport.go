package connect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/config"
	"golang.org/x/net/http/httpguts"

	"github.com/kvtuner/kvtuner/tuner"
)

// What is read of an answer of Prometheus at most, which takes 200 MiB
// of memory while it is understood. A sample of a pool of a thousand engines is below 16 MiB
// and has 20 thousand series.
const (
	maxAnswerBytes = 32 << 20
	// maxAnswerObjects are two a series: memory goes with them, and the smallest is
	// three bytes of text.
	maxAnswerObjects = 1 << 19
	// maxAnswerStrings are two a label and one a value.
	maxAnswerStrings = 1 << 21
)

const idleTimeout = 90 * time.Second

// newTransport puts the layers together, from the connection outwards.
func newTransport(c tuner.PrometheusConfig) (http.RoundTripper, error) {
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("prometheus.url: is not a URL")
	}
	fixed, err := parsePairs("prometheus.headers", c.Headers)
	if err != nil {
		return nil, err
	}
	files, err := parsePairs("prometheus.headerFiles", c.HeaderFiles)
	if err != nil {
		return nil, err
	}
	settings, err := clientConfig(c)
	if err != nil {
		return nil, err
	}
	next, err := config.NewRoundTripperFromConfig(settings, "prometheus", config.WithIdleConnTimeout(idleTimeout), config.WithUserAgent("kvtuner"), config.WithSecretManager(Files{}))
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	if c.OAuth2.ClientID != "" {
		next = newTokens(c, settings, next)
	}
	return &answers{next: &headers{next: next, base: base, fixed: fixed, files: files}}, nil
}

// Files is what the library of Prometheus reads certificates and credentials with:
// its own reading has no limit. It implements config.SecretManager, whose
// references are paths.
type Files struct{}

// Fetch implements config.SecretManager.
func (Files) Fetch(_ context.Context, path string) (string, error) {
	raw, err := tuner.ReadFile(path, tuner.MaxFile)
	return strings.TrimSpace(string(raw)), err
}

// clientConfig is the configuration in the terms of Prometheus itself.
func clientConfig(c tuner.PrometheusConfig) (config.HTTPClientConfig, error) {
	h := config.DefaultHTTPClientConfig
	h.TLSConfig = config.TLSConfig{
		CARef: c.TLS.CAFile, CertRef: c.TLS.CertFile, KeyRef: c.TLS.KeyFile,
		ServerName: c.TLS.ServerName, InsecureSkipVerify: c.TLS.InsecureSkipVerify,
	}
	if c.BearerTokenFile != "" {
		h.Authorization = &config.Authorization{Type: "Bearer", CredentialsRef: c.BearerTokenFile}
	}
	if c.BasicAuth.Username != "" {
		h.BasicAuth = &config.BasicAuth{Username: c.BasicAuth.Username, PasswordRef: c.BasicAuth.PasswordFile}
	}
	switch c.Proxy {
	case "":
		h.ProxyFromEnvironment = true
	case tuner.NoProxy:
	default:
		u, err := url.Parse(c.Proxy)
		if err != nil {
			return h, errors.New("prometheus.proxy: is not a URL")
		}
		h.ProxyURL = config.URL{URL: u}
	}
	return h, h.Validate()
}

// pair is a line "Name: value".
type pair struct{ name, value string }

// parsePairs reads "Name: value" lines. Errors never show a value: it may be a
// secret.
func parsePairs(setting string, lines []string) ([]pair, error) {
	var pairs []pair
	var errs []error
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !found || !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("%s[%d]: the name is not that of an HTTP header; write \"Name: value\"", setting, i))
		case !httpguts.ValidHeaderFieldValue(value):
			errs = append(errs, fmt.Errorf("%s[%d]: the value of %s has characters that no HTTP header may have", setting, i, name))
		default:
			pairs = append(pairs, pair{http.CanonicalHeaderKey(name), value})
		}
	}
	return pairs, errors.Join(errs...)
}

// headers adds the configured headers to requests for the configured server.
// Another goes without: they may be credentials.
type headers struct {
	next         http.RoundTripper
	base         *url.URL
	fixed, files []pair
}

// RoundTrip implements http.RoundTripper.
func (t *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if !sameServer(t.base, r.URL) {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	for _, set := range [][]pair{t.fixed, t.files} {
		for _, h := range set {
			r.Header.Del(h.name)
		}
	}
	for _, h := range t.fixed {
		r.Header.Add(h.name, h.value)
	}
	for _, h := range t.files {
		value, err := tuner.ReadFile(h.value, tuner.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("prometheus.headerFiles, %s: %w", h.name, err)
		}
		r.Header.Add(h.name, strings.TrimSpace(string(value)))
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections passes the call on.
func (t *headers) CloseIdleConnections() { closeIdle(t.next) }

// answers bounds what a server says, and refuses a partial answer that does not
// come with a warning.
type answers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limited := http.MaxBytesReader(nil, resp.Body, maxAnswerBytes)
	body := bufio.NewReaderSize(&counted{Reader: limited}, headBytes)
	resp.Body = readCloser{body, limited}
	if saysPartial(body) {
		return nil, errors.Join(errPartial, resp.Body.Close())
	}
	return resp, nil
}

// CloseIdleConnections passes the call on.
func (t *answers) CloseIdleConnections() { closeIdle(t.next) }

func closeIdle(t http.RoundTripper) {
	if c, ok := t.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// counted ends an answer that has more JSON objects or strings than it may.
type counted struct {
	io.Reader
	objects, quotes int
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.objects += bytes.Count(p[:n], []byte{'{'})
	c.quotes += bytes.Count(p[:n], []byte{'"'})
	switch {
	case c.objects > maxAnswerObjects:
		return 0, fmt.Errorf("the answer has more than %d series: does the pool's selector match others' series?", maxAnswerObjects/2)
	case c.quotes/2 > maxAnswerStrings:
		return 0, fmt.Errorf("the answer has more than %d labels and values: does the pool's selector match others' series?", maxAnswerStrings)
	}
	return n, err
}

type readCloser struct {
	io.Reader
	io.Closer
}

// headBytes is how much of an answer is looked at for isPartial: it stands
// between the status and the data.
const headBytes = 4 << 10

// saysPartial looks at the beginning of an answer. A head that does not come is
// for the reader of the body to notice.
func saysPartial(body *bufio.Reader) bool {
	head, _ := body.Peek(1)
	if len(head) == 0 {
		return false
	}
	head, _ = body.Peek(body.Buffered())
	head, _, _ = bytes.Cut(head, []byte(`"data"`))
	return bytes.Contains(bytes.ReplaceAll(head, []byte(" "), nil), []byte(`"isPartial":true`))
}
