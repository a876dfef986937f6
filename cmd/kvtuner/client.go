package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

const (
	defaultAddress = "http://127.0.0.1:9095"
	// clientTimeout is how long a daemon may take to answer.
	clientTimeout = 30 * time.Second
	// maxResponseBytes is above the largest list the API gives.
	maxResponseBytes = 64 << 20
)

// client asks and commands a running daemon.
type client struct {
	base  *url.URL
	http  *http.Client
	token string
}

// endpoint is the flags that say which daemon to ask, and how to trust it.
type endpoint struct{ address, ca, cert, key, tokenFile string }

// addEndpoint adds those that every question needs.
func addEndpoint(cmd *cobra.Command) *endpoint {
	e := &endpoint{}
	f := cmd.Flags()
	f.StringVar(&e.address, "address", defaultAddress, "`URL` or host:port of the daemon, as its setting \"listen\" has it")
	f.StringVar(&e.ca, "ca", "", "PEM `FILE` of who signed the daemon's certificate, if the system does not know them")
	return e
}

// addCredentials adds those that commands need.
func (e *endpoint) addCredentials(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.tokenFile, "token-file", os.Getenv(tokenFileEnv), "`FILE` with your token, as \"TOKEN\" or \"NAME TOKEN\" (default $"+tokenFileEnv+")")
	f.Lookup("token-file").DefValue = ""
	f.StringVar(&e.cert, "cert", "", "PEM `FILE` of your certificate, if the daemon knows operators by that")
	f.StringVar(&e.key, "key", "", "PEM `FILE` of its key")
	cmd.MarkFlagsRequiredTogether("cert", "key")
}

const tokenFileEnv = "KVTUNER_TOKEN_FILE"

// maxClientFile bounds the files that say whom to trust and who asks, in bytes.
const maxClientFile = 1 << 20

func newClient(ctx context.Context, e endpoint) (*client, error) {
	address := e.address
	if !strings.Contains(address, "://") && address != "" {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usage(fmt.Errorf("--address: %q is not host:port nor an http or https URL, such as %s", e.address, defaultAddress))
	}
	transport, err := e.transport(ctx)
	if err != nil {
		return nil, usage(err)
	}
	c := &client{base: u, http: &http.Client{Transport: transport, CheckRedirect: stay}}
	if c.token, err = e.token(ctx); err != nil {
		return nil, usage(err)
	}
	return c, nil
}

// stay follows no redirect: a token is for the address it was given for.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (e endpoint) transport(ctx context.Context) (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if e.ca != "" {
		pem, err := fromFile(ctx, e.ca, maxClientFile, io.ReadAll)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %q holds no PEM certificate", e.ca)
		}
	}
	if e.cert != "" {
		pair, err := e.certificate(ctx)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func (e endpoint) certificate(ctx context.Context) (tls.Certificate, error) {
	cert, err := fromFile(ctx, e.cert, maxClientFile, io.ReadAll)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := fromFile(ctx, e.key, maxClientFile, io.ReadAll)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// token is the last word of the file's only line that is no comment.
func (e endpoint) token(ctx context.Context) (string, error) {
	if e.tokenFile == "" {
		return "", nil
	}
	raw, err := fromFile(ctx, e.tokenFile, maxClientFile, io.ReadAll)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	var words []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			if words != nil {
				return "", fmt.Errorf("--token-file: %q has several tokens; give a file with yours only", e.tokenFile)
			}
			words = f
		}
	}
	if len(words) == 0 || len(words) > 2 {
		return "", fmt.Errorf("--token-file: %q has no line with a token", e.tokenFile)
	}
	return words[len(words)-1], nil
}

// status asks for one pool, or all if the name is empty.
func (c *client) status(ctx context.Context, pool string) (web.StatusResponse, error) {
	var s web.StatusResponse
	err := c.get(ctx, &s, query("pool", pool), "status")
	if err == nil && len(s.Pools) == 0 {
		err = c.foreign()
	}
	return s, err
}

func (c *client) list(ctx context.Context, filter url.Values) (web.DecisionsResponse, error) {
	var d web.DecisionsResponse
	err := c.get(ctx, &d, filter, "decisions")
	if err == nil && d.Decisions == nil {
		err = c.foreign()
	}
	return d, err
}

func (c *client) decision(ctx context.Context, pool, id string) (store.Decision, error) {
	var d store.Decision
	err := c.get(ctx, &d, query("pool", pool), "decisions", url.PathEscape(id))
	if err == nil && d.ID == "" {
		err = c.foreign()
	}
	return d, err
}

// foreign is the error of an answer that is JSON, but not what a daemon says. What
// it lacks must not be taken for zero, nor a command for obeyed.
func (c *client) foreign() error {
	return fmt.Errorf("asking %s: the answer is not kvtuner's (does --address lead to another service?)", c.base.Redacted())
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
	if err := c.send(ctx, http.MethodGet, u.String(), nil, into); err != nil {
		return fmt.Errorf("asking the daemon at %s: %w", c.base.Redacted(), err)
	}
	return nil
}

// command sends a verb for a pool.
func (c *client) command(ctx context.Context, pool string, v tuner.Verb, body web.CommandRequest) (tuner.Receipt, error) {
	var r tuner.Receipt
	raw, err := json.Marshal(body)
	if err != nil {
		return r, err
	}
	u := c.base.JoinPath("api", "v1", "pools", url.PathEscape(pool), string(v))
	if err := c.send(ctx, http.MethodPost, u.String(), raw, &r); err != nil {
		return r, fmt.Errorf("commanding the daemon at %s: %w", c.base.Redacted(), err)
	}
	if r.Decision.ID == "" {
		return r, c.foreign()
	}
	return r, nil
}

func (c *client) send(ctx context.Context, method, address string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			request.Header.Set("Authorization", "Bearer "+c.token)
		}
	}
	response, err := c.http.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("%w (is \"kvtuner run\" running there? --address says where to ask)", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusAccepted {
		return refused(response.Status, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
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
	if r.Error.Code == web.CodeUnauthorized {
		return withExitCode(fmt.Errorf("%w (--token-file, or --cert and --key, say who you are)", r.Error))
	}
	return withExitCode(r.Error)
}

// withExitCode maps the errors of the API, and of a history read directly, to
// exit codes.
func withExitCode(err error) error {
	var e *web.Error
	errors.As(err, &e)
	switch {
	case e != nil && slices.Contains([]web.Code{web.CodeUnauthorized, web.CodeForbidden, web.CodeRefused, web.CodeLimit}, e.Code):
		return &exitError{exitRefused, err}
	case e != nil && e.Code == web.CodeParameter, errors.Is(err, store.ErrInvalid):
		return usage(err)
	case e != nil && e.Code == web.CodeNotFound, errors.Is(err, store.ErrNotFound):
		return notFound(err)
	default:
		return err
	}
}
