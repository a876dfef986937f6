package connect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/tuner"
)

// Client asks one server. It connects when it is first asked.
type Client struct {
	promv1.API
	timeout time.Duration
	slots   chan struct{} // nil is no limit
	idle    *http.Client
}

// New returns a client of the configured server. Errors name the setting and
// never show a secret.
func New(c tuner.PrometheusConfig) (*Client, error) {
	transport, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	h := &http.Client{Transport: transport, CheckRedirect: stayThere}
	raw, err := api.NewClient(api.Config{Address: c.URL, Client: h})
	if err != nil {
		return nil, fmt.Errorf("prometheus.url: %w", err)
	}
	client := &Client{API: promv1.NewAPI(raw), timeout: c.Timeout, idle: h}
	if c.Concurrency > 0 {
		client.slots = make(chan struct{}, c.Concurrency)
	}
	return client, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.idle.CloseIdleConnections() }

// Query asks when its turn comes, and tells the server after what time nobody
// waits for the answer any more.
func (c *Client) Query(ctx context.Context, q string, at time.Time, opts ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	release, err := c.turn(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer release()
	return c.API.Query(ctx, q, at, append(opts, promv1.WithTimeout(c.timeout))...)
}

func (c *Client) turn(ctx context.Context) (release func(), err error) {
	if c.slots == nil {
		return func() {}, nil
	}
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for one of %d queries at a time to end (prometheus.concurrency): %w", cap(c.slots), ctx.Err())
	}
}

// stayThere follows a redirect within the server, or to its https, and no other:
// a login page is no answer, and credentials must not travel.
func stayThere(r *http.Request, via []*http.Request) error {
	const most = 5
	first := via[0].URL
	switch {
	case len(via) >= most:
		return fmt.Errorf("more than %d redirects", most)
	case !sameServer(first, r.URL):
		return fmt.Errorf("the server sends us to %s, which is not followed: a login page? Give credentials (prometheus.bearerTokenFile, basicAuth, oauth2), or that address as prometheus.url",
			r.URL.Scheme+"://"+r.URL.Host)
	}
	return nil
}

func sameServer(base, u *url.URL) bool {
	return u.Host == base.Host && (u.Scheme == base.Scheme || u.Scheme == "https")
}

// errPartial is what VictoriaMetrics means by isPartial.
var errPartial = errors.New("the answer is partial: a storage node of the cluster did not answer (isPartial)")
