package web_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kvtuner/kvtuner/tuner/web"
)

type noMetrics struct{ prometheus.Gatherer }

func (noMetrics) Gather() ([]*dto.MetricFamily, error) { return nil, nil }

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{t, cert, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue writes a certificate for 127.0.0.1 and a name, and its key.
func (a authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(a.t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(a.t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
	return certFile, keyFile
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveTLS serves pool "a" over mTLS.
func serveTLS(t *testing.T, h http.Handler, f web.TLSFiles) *httptest.Server {
	t.Helper()
	config, err := f.Config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.TLS, s.Config.ErrorLog = config, slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return s
}

// pauseOver sends a pause over a connection of its own.
func pauseOver(t *testing.T, s *httptest.Server, c *tls.Config, headers ...string) (int, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	r, err := http.NewRequest(http.MethodPost, s.URL+"/api/v1/pools/a/pause", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

func TestClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), ca.pem())
	cert, key := ca.issue("localhost")
	c := newControl(t, func(o *web.Options) { o.TokenFile, o.ClientCertificates = "", true })
	s := serveTLS(t, c, web.TLSFiles{Cert: cert, Key: key, ClientCA: filepath.Join(dir, "ca.crt")})

	with := func(a authority, name string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(a.issue(name))
		if err != nil {
			t.Fatal(err)
		}
		// A client is free to send a certificate that was not asked for.
		return &tls.Config{RootCAs: ca.pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	if code, err := pauseOver(t, s, with(ca, "carol\n<script>")); err != nil || code != 200 {
		t.Errorf("with a certificate: %d, %v", code, err)
	}
	if len(c.pool.got) != 1 || c.pool.got[0].Actor != "carol--script" {
		t.Errorf("the pool got %+v", c.pool.got)
	}
	if code, err := pauseOver(t, s, with(stranger, "carol")); err == nil {
		t.Errorf("a stranger's certificate got %d", code)
	}
	if code, err := pauseOver(t, s, &tls.Config{RootCAs: ca.pool()}); err != nil || code != 401 {
		t.Errorf("without a certificate: %d, %v", code, err)
	}
	if code, err := pauseOver(t, s, with(ca, "carol"), "Sec-Fetch-Site", "cross-site"); err != nil || code != 403 {
		t.Errorf("from another site: %d, %v", code, err)
	}
	write(t, filepath.Join(dir, "ca.crt"), stranger.pem())
	if code, err := pauseOver(t, s, with(ca, "carol")); err == nil {
		t.Errorf("after the client CA was rotated, the old one's certificate got %d", code)
	}
	if code, err := pauseOver(t, s, with(stranger, "dave")); err != nil || code != 200 {
		t.Errorf("after the client CA was rotated: %d, %v", code, err)
	}
}

func TestServerCertificateIsRotated(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	cert, key := first.issue("localhost")
	s := serveTLS(t, newControl(t, nil), web.TLSFiles{Cert: cert, Key: key})
	trusts := func(a authority) bool {
		_, err := pauseOver(t, s, &tls.Config{RootCAs: a.pool()})
		return err == nil
	}
	if !trusts(first) {
		t.Fatal("the first certificate is not served")
	}
	write(t, key, []byte("half written"))
	if !trusts(first) {
		t.Error("the last good certificate is not kept")
	}
	nextCert, nextKey := second.issue("localhost")
	for from, to := range map[string]string{nextCert: cert, nextKey: key} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, raw)
	}
	if trusts(first) || !trusts(second) {
		t.Error("the next certificate is not served")
	}
}

func TestTLSFilesThatAreRefused(t *testing.T) {
	cert, key := newAuthority(t).issue("localhost")
	for says, f := range map[string]web.TLSFiles{
		"web.tls.certFile: open":                                  {Cert: "/nowhere", Key: key},
		"web.tls.keyFile: open":                                   {Cert: cert, Key: "/nowhere"},
		`web.tls.clientCAFile: "/dev/null" is not a regular file`: {Cert: cert, Key: key, ClientCA: os.DevNull},
		"web.tls.clientCAFile: open":                              {Cert: cert, Key: key, ClientCA: "/nowhere"},
		"web.tls.clientCAFile: holds no PEM certificate":          {Cert: cert, Key: key, ClientCA: key},
		"web.tls.certFile and keyFile: tls: failed to find cert":  {Cert: key, Key: key},
	} {
		if _, err := f.Config(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", f, err, says)
		}
	}
}
