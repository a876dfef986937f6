package connect

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/config"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kvtuner/kvtuner/tuner"
)

// newTokens adds a token of the configured authority to each request. The
// library of Prometheus would, too, but waits for the authority without limit.
func newTokens(c tuner.PrometheusConfig, settings config.HTTPClientConfig, next http.RoundTripper) http.RoundTripper {
	return &tokens{
		Transport: oauth2.Transport{Base: next, Source: oauth2.ReuseTokenSource(nil, &authority{
			settings: c.OAuth2, timeout: c.Timeout, proxy: settings.Proxy(), tls: config.TLSConfig{CAFile: c.TLS.CAFile, InsecureSkipVerify: c.TLS.InsecureSkipVerify},
		})},
	}
}

type tokens struct{ oauth2.Transport }

// CloseIdleConnections passes the call on.
func (t *tokens) CloseIdleConnections() { closeIdle(t.Base) }

// authority issues tokens. The secret is read for each one: it may have been
// rotated.
type authority struct {
	settings tuner.OAuth2
	timeout  time.Duration
	proxy    func(*http.Request) (*url.URL, error)
	tls      config.TLSConfig
}

// Token implements oauth2.TokenSource.
func (a *authority) Token() (*oauth2.Token, error) {
	secret, err := os.ReadFile(a.settings.ClientSecretFile)
	if err != nil {
		return nil, fmt.Errorf("prometheus.oauth2.clientSecretFile: %w", err)
	}
	tls, err := config.NewTLSConfig(&a.tls)
	if err != nil {
		return nil, fmt.Errorf("prometheus.tls: %w", err)
	}
	transport := &http.Transport{Proxy: a.proxy, TLSClientConfig: tls, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport})
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
