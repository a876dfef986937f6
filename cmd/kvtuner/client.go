package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner/web"
)

const (
	defaultAddress = "http://127.0.0.1:9095"
	// clientTimeout is how long a daemon may take to answer.
	clientTimeout = 30 * time.Second
	// maxResponseBytes is above the largest list the API gives.
	maxResponseBytes = 64 << 20
)

// client asks a running daemon.
type client struct{ base *url.URL }

// addAddress adds the flag that says which daemon to ask.
func addAddress(cmd *cobra.Command) *string {
	return cmd.Flags().String("address", defaultAddress, "`URL` of the daemon, as its setting \"listen\" has it")
}

func newClient(address string) (*client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usage(fmt.Errorf("--address: %q is not an http or https URL, such as %s", address, defaultAddress))
	}
	return &client{u}, nil
}

// status asks for one pool, or all if the name is empty.
func (c *client) status(ctx context.Context, pool string) (web.StatusResponse, error) {
	var s web.StatusResponse
	err := c.get(ctx, &s, query("pool", pool), "status")
	return s, err
}

func (c *client) list(ctx context.Context, filter url.Values) (web.DecisionsResponse, error) {
	var d web.DecisionsResponse
	err := c.get(ctx, &d, filter, "decisions")
	return d, err
}

func (c *client) decision(ctx context.Context, pool, id string) (store.Decision, error) {
	var d store.Decision
	err := c.get(ctx, &d, query("pool", pool), "decisions", url.PathEscape(id))
	return d, err
}

// query has the parameter only if it has a value.
func query(name, value string) url.Values {
	if value == "" {
		return nil
	}
	return url.Values{name: {value}}
}

func (c *client) get(ctx context.Context, into any, parameters url.Values, path ...string) error {
	u := c.base.JoinPath(append([]string{"api", "v1"}, path...)...)
	u.RawQuery = parameters.Encode()
	if err := fetch(ctx, u.String(), into); err != nil {
		return fmt.Errorf("asking the daemon at %s: %w", c.base.Redacted(), err)
	}
	return nil
}

func fetch(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("%w (is \"kvtuner run\" running there? --address says where to ask)", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return refused(response.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer is not kvtuner's (does --address lead to another service?): %w", err)
	}
	return nil
}

// refused turns an error of the API into one with the right exit code.
func refused(status string, body []byte) error {
	var r web.ErrorResponse
	if err := json.Unmarshal(body, &r); err != nil || r.Error == nil {
		return fmt.Errorf("it answered %s (does --address lead to another service?)", status)
	}
	return withExitCode(r.Error)
}

// withExitCode maps the errors of the API, and of a history read directly, to
// exit codes.
func withExitCode(err error) error {
	var e *web.Error
	errors.As(err, &e)
	switch {
	case e != nil && e.Code == web.CodeParameter, errors.Is(err, store.ErrInvalid):
		return usage(err)
	case e != nil && e.Code == web.CodeNotFound, errors.Is(err, store.ErrNotFound):
		return notFound(err)
	default:
		return err
	}
}
