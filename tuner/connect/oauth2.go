package connect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/kvtuner/kvtuner/tuner"
)

// newTokens adds a token of the configured authority to each request. The
// library of Prometheus would, too, but waits for the authority without limit, and
// the one of OAuth2 lets each query wait for those before it.
func newTokens(c tuner.PrometheusConfig, settings config.HTTPClientConfig, next http.RoundTripper) http.RoundTripper {
	return &tokens{next: next, issue: (&authority{
		settings: c.OAuth2, timeout: c.Timeout, proxy: settings.Proxy(), tls: config.TLSConfig{CARef: c.TLS.CAFile, InsecureSkipVerify: c.TLS.InsecureSkipVerify},
	}).token}
}

// tokens uses a token for as long as it is valid. Who needs a new one waits for the
// one answer that all wait for, and no longer than its own query may take.
type tokens struct {
	next    http.RoundTripper
	issue   func() (*oauth2.Token, error)
	current atomic.Pointer[oauth2.Token]
	asking  singleflight.Group
}

// RoundTrip implements http.RoundTripper.
func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token(r.Context())
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	token.SetAuthHeader(r)
	return t.next.RoundTrip(r)
}

func (t *tokens) token(ctx context.Context) (*oauth2.Token, error) {
	if token := t.current.Load(); token.Valid() {
		return token, nil
	}
	answer := t.asking.DoChan("", func() (any, error) {
		token, err := t.issue()
		if err == nil {
			t.current.Store(token)
		}
		return token, err
	})
	select {
	case a := <-answer:
		token, _ := a.Val.(*oauth2.Token)
		return token, a.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a token of prometheus.oauth2.tokenURL: %w", ctx.Err())
	}
}

// CloseIdleConnections passes the call on.
func (t *tokens) CloseIdleConnections() { closeIdle(t.next) }

// authority issues tokens. The secret is read for each one: it may have been
// rotated.
type authority struct {
	settings tuner.OAuth2
	timeout  time.Duration
	proxy    func(*http.Request) (*url.URL, error)
	tls      config.TLSConfig
}

// token asks for one.
func (a *authority) token() (*oauth2.Token, error) {
	secret, err := tuner.ReadFile(a.settings.ClientSecretFile, tuner.MaxFile)
	if err != nil {
		return nil, fmt.Errorf("prometheus.oauth2.clientSecretFile: %w", err)
	}
	tls, err := config.NewTLSConfig(&a.tls, config.WithSecretManager(Files{}))
	if err != nil {
		return nil, fmt.Errorf("prometheus.tls: %w", err)
	}
	transport := &http.Transport{Proxy: a.proxy, TLSClientConfig: tls, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport, CheckRedirect: refuseRedirect})
	credentials := clientcredentials.Config{
		ClientID: a.settings.ClientID, ClientSecret: strings.TrimSpace(string(secret)), TokenURL: a.settings.TokenURL,
		Scopes: a.settings.Scopes, EndpointParams: endpointParams(a.settings.EndpointParams),
	}
	token, err := credentials.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("prometheus.oauth2.tokenURL gives no token: %w", withoutBody(err))
	}
	return token, nil
}

// refuseRedirect keeps the secret, which may be in the request's body, from
// travelling on.
func refuseRedirect(r *http.Request, _ []*http.Request) error {
	return fmt.Errorf("it sends us to %s, which is not followed: give that address if it is the right one", r.URL.Scheme+"://"+r.URL.Host)
}

// withoutBody leaves out what the authority answered: it may repeat what it was
// sent.
func withoutBody(err error) error {
	if refused, ok := err.(*oauth2.RetrieveError); ok {
		if refused.ErrorCode != "" {
			return fmt.Errorf("%s (%s)", refused.Response.Status, refused.ErrorCode)
		}
		return fmt.Errorf("%s", refused.Response.Status)
	}
	return err
}

func endpointParams(lines []string) url.Values {
	v := url.Values{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		v.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return v
}
