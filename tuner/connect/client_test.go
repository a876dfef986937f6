package connect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/tuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const empty = `{"status":"success","data":{"resultType":"matrix","result":[]}}`

// serve answers every query with a body, and tells of the requests it got.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func respond(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

// ask sends one query with the configuration.
func ask(t *testing.T, c tuner.PrometheusConfig) error {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	client, err := New(c)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	_, warnings, _, err := client.Query(ctx, "up[1m]", time.Unix(1e9, 0))
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("warning: %s", warnings[0])
	}
	return err
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a query carries, by configuration.
func TestQueryCarries(t *testing.T) {
	secret := write(t, "secret", "hunter2\n")
	for name, tc := range map[string]struct {
		config tuner.PrometheusConfig
		header string
		want   string
	}{
		"tenant":        {tuner.PrometheusConfig{Headers: []string{"X-Scope-OrgID: a", "X-Scope-OrgID:b"}}, "X-Scope-OrgID", "a,b"},
		"header file":   {tuner.PrometheusConfig{HeaderFiles: []string{"X-Api-Key: " + secret}}, "X-Api-Key", "hunter2"},
		"authorization": {tuner.PrometheusConfig{Headers: []string{"Authorization: Token  x:y "}}, "Authorization", "Token  x:y"},
		"bearer":        {tuner.PrometheusConfig{BearerTokenFile: secret}, "Authorization", "Bearer hunter2"},
		"basic":         {tuner.PrometheusConfig{BasicAuth: tuner.BasicAuth{Username: "me", PasswordFile: secret}}, "Authorization", "Basic bWU6aHVudGVyMg=="},
		"user agent":    {tuner.PrometheusConfig{}, "User-Agent", "kvtuner"},
	} {
		t.Run(name, func(t *testing.T) {
			var got, timeout string
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got, timeout = strings.Join(r.Header.Values(tc.header), ","), r.FormValue("timeout")
				io.WriteString(w, empty)
			})
			tc.config.URL = s.URL
			if err := ask(t, tc.config); err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("%s is %q, want %q", tc.header, got, tc.want)
			}
			if timeout != "1m0s" {
				t.Errorf("the server is told to give up after %q, not prometheus.timeout", timeout)
			}
		})
	}
}

// A file that a setting names is read with a limit, whoever reads it.
func TestFilesAreBounded(t *testing.T) {
	endless := write(t, "endless", strings.Repeat("x", tuner.MaxFile+1))
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("Prometheus was asked") })
	for setting, c := range map[string]tuner.PrometheusConfig{
		"headerFiles":             {HeaderFiles: []string{"X-Api-Key: " + endless}},
		"bearerTokenFile":         {BearerTokenFile: endless},
		"basicAuth.passwordFile":  {BasicAuth: tuner.BasicAuth{Username: "me", PasswordFile: endless}},
		"oauth2.clientSecretFile": {OAuth2: tuner.OAuth2{ClientID: "me", ClientSecretFile: endless, TokenURL: s.URL}},
		"tls.caFile":              {TLS: tuner.TLSOptions{CAFile: endless}},
		"tls.certFile":            {TLS: tuner.TLSOptions{CertFile: endless, KeyFile: endless}},
	} {
		t.Run(setting, func(t *testing.T) {
			c.URL = s.URL
			if err := ask(t, c); err == nil || !strings.Contains(err.Error(), "is larger than") {
				t.Errorf("got %v, want that the file is too large", err)
			}
		})
	}
}

func TestTokenFileIsReadAgain(t *testing.T) {
	var got string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		io.WriteString(w, empty)
	})
	token := write(t, "token", "one")
	client, err := New(tuner.PrometheusConfig{URL: s.URL, Timeout: time.Minute, BearerTokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(token, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := client.Query(t.Context(), "up", time.Unix(1e9, 0)); err != nil || got != "Bearer "+want {
			t.Errorf("sent %q, %v; the file has %q", got, err, want)
		}
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := client.Query(t.Context(), "up", time.Unix(1e9, 0)); err == nil || !strings.Contains(err.Error(), token) {
		t.Errorf("without the file: %v; want its path", err)
	}
}

func TestOAuth2(t *testing.T) {
	secret := write(t, "secret", "hunter2")
	issued := 0
	authority := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, password, _ := r.BasicAuth()
		if id == "" { // the client's second way to ask, after a refusal
			http.Error(w, "use basic authentication", http.StatusUnauthorized)
			return
		}
		if id != "kvtuner" || r.FormValue("scope") != "metrics" || r.FormValue("audience") != "prom" || r.FormValue("grant_type") != "client_credentials" {
			t.Errorf("the authority was asked by %q for %v", id, r.Form)
		}
		if password != "hunter2" && password != "hunter3" {
			http.Error(w, password+" is wrong", http.StatusUnauthorized)
			return
		}
		issued++
		w.Header().Set("Content-Type", "application/json")
		// Tokens are renewed 10 s before they expire: this one is used once.
		fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":9}`, issued)
	})
	var got []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		io.WriteString(w, empty)
	})
	c := tuner.PrometheusConfig{URL: s.URL, Timeout: time.Minute, OAuth2: tuner.OAuth2{
		ClientID: "kvtuner", ClientSecretFile: secret, TokenURL: authority.URL, Scopes: []string{"metrics"}, EndpointParams: []string{"audience=prom"},
	}}
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, rotated := range []string{"hunter2", "hunter3", "wrong-password"} {
		if err := os.WriteFile(secret, []byte(rotated), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, _, err = client.Query(t.Context(), "up", time.Unix(1e9, 0))
	}
	if strings.Join(got, ",") != "Bearer t1,Bearer t2" {
		t.Errorf("Prometheus saw %v", got)
	}
	if err == nil || !strings.Contains(err.Error(), "oauth2.tokenURL gives no token: 401") || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("a refused secret: %v", err)
	}
}

// A token endpoint that hangs ends at the timeout, whoever waits for it.
func TestOAuth2AuthorityThatHangs(t *testing.T) {
	done := make(chan struct{})
	authority := serve(t, func(http.ResponseWriter, *http.Request) { <-done })
	defer close(done)
	err := ask(t, tuner.PrometheusConfig{URL: "http://127.0.0.1:1", Timeout: 100 * time.Millisecond, OAuth2: tuner.OAuth2{
		ClientID: "kvtuner", ClientSecretFile: write(t, "secret", "x"), TokenURL: authority.URL,
	}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// Answers that must not pass for data.
func TestAnswersThatAreErrors(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "500")
		io.WriteString(w, empty[:30])
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"unauthorised":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusUnauthorized) }, "401"},
		"forbidden":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, "403"},
		"no such API":    {http.NotFound, "404"},
		"server error":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusBadGateway) }, "502"},
		"cut off":        {cut, "unexpected EOF"},
		"truncated JSON": {respond(empty[:40]), ""},
		"a page":         {respond("<html>log in</html>"), ""},
		"warning":        {respond(`{"status":"success","warnings":["store gateway is down"],"data":{"resultType":"matrix","result":[]}}`), "store gateway is down"},
		"partial":        {respond(`{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}`), "isPartial"},
		"redirect to login": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/?x", http.StatusFound)
		}, "https://login.example, which is not followed"},
		"redirect for ever": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, "redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ask(t, tuner.PrometheusConfig{URL: serve(t, tc.handler).URL})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q in it", err, tc.says)
			}
		})
	}
	whole := `{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":[{"metric":{"x":"\"isPartial\":true"},"values":[]}]}}`
	if err := ask(t, tuner.PrometheusConfig{URL: serve(t, respond(whole)).URL}); err != nil {
		t.Errorf("a whole answer: %v", err)
	}
}

func TestSlowAnswerEndsAtTheTimeout(t *testing.T) {
	done := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-done })
	defer close(done)
	if err := ask(t, tuner.PrometheusConfig{URL: s.URL, Timeout: 100 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestConcurrencyIsLimited(t *testing.T) {
	arrived, proceed := make(chan struct{}, 3), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-proceed
		io.WriteString(w, empty)
	})
	client, err := New(tuner.PrometheusConfig{URL: s.URL, Timeout: time.Minute, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first := make(chan error, 1)
	go func() {
		_, _, _, err := client.Query(context.Background(), "up", time.Unix(1e9, 0))
		first <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := client.Query(ctx, "up", time.Unix(1e9, 0)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "prometheus.concurrency") {
		t.Errorf("a second query: %v", err)
	}
	close(proceed)
	if err := <-first; err != nil {
		t.Errorf("the first query: %v", err)
	}
	if len(arrived) > 0 {
		t.Error("the second query reached the server")
	}
}

func TestProxy(t *testing.T) {
	var through string
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		through = r.URL.Host
		io.WriteString(w, empty)
	})
	if err := ask(t, tuner.PrometheusConfig{URL: "http://prometheus.example", Proxy: proxy.URL}); err != nil || through != "prometheus.example" {
		t.Errorf("went through the proxy for %q, %v", through, err)
	}
	s := serve(t, respond(empty))
	if err := ask(t, tuner.PrometheusConfig{URL: s.URL, Proxy: tuner.NoProxy}); err != nil {
		t.Errorf("without a proxy: %v", err)
	}
}

// certificate is a self-signed certificate and key as files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kvtuner"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", encode("CERTIFICATE", der)), write(t, "key.pem", encode("PRIVATE KEY", pkcs))
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestTLS(t *testing.T) {
	var client string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client = ""
		if len(r.TLS.PeerCertificates) > 0 {
			client = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		io.WriteString(w, empty)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := write(t, "ca.pem", encode("CERTIFICATE", s.Certificate().Raw))
	cert, key := certificate(t)
	for name, tc := range map[string]struct {
		tls    tuner.TLSOptions
		client string
		says   string
	}{
		"unknown authority":  {tuner.TLSOptions{}, "", "certificate signed by unknown authority"},
		"its authority":      {tuner.TLSOptions{CAFile: ca}, "", ""},
		"any":                {tuner.TLSOptions{InsecureSkipVerify: true}, "", ""},
		"another name":       {tuner.TLSOptions{CAFile: ca, ServerName: "other.test"}, "", "other.test"},
		"client certificate": {tuner.TLSOptions{CAFile: ca, CertFile: cert, KeyFile: key}, "kvtuner", ""},
		"no such authority":  {tuner.TLSOptions{CAFile: ca + "x"}, "", ca + "x"},
		"key of another":     {tuner.TLSOptions{CAFile: ca, CertFile: ca, KeyFile: key}, "", "unable to use specified client cert"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ask(t, tuner.PrometheusConfig{URL: s.URL, TLS: tc.tls})
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Fatalf("got %v, want %q", err, tc.says)
			}
			if tc.says == "" && client != tc.client {
				t.Errorf("the server saw the client %q, want %q", client, tc.client)
			}
		})
	}
}

// An authority that is replaced on disk is trusted from then on.
func TestAuthorityIsReadAgain(t *testing.T) {
	s := httptest.NewUnstartedServer(respond(empty))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	other, _ := certificate(t)
	ca := write(t, "ca.pem", "")
	stranger, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, stranger, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := New(tuner.PrometheusConfig{URL: s.URL, Timeout: time.Minute, TLS: tuner.TLSOptions{CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, _, _, err := client.Query(t.Context(), "up", time.Unix(1e9, 0)); err == nil {
		t.Error("a stranger's certificate was accepted")
	}
	if err := os.WriteFile(ca, []byte(encode("CERTIFICATE", s.Certificate().Raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := client.Query(t.Context(), "up", time.Unix(1e9, 0)); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
}
