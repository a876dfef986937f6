package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kvtuner/kvtuner/tuner"
)

// TLSFiles are a server's PEM files. ClientCA may be empty: no client is then
// asked for a certificate.
type TLSFiles struct {
	Cert, Key, ClientCA string
}

// Config serves with what the files hold at each handshake, so that they can be
// rotated. Files that cannot be read keep the last that could in use.
func (f TLSFiles) Config(log *slog.Logger) (*tls.Config, error) {
	first, err := f.load()
	if err != nil {
		return nil, err
	}
	last := make(chan *tls.Config, 1)
	last <- first
	c := first.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := <-last
		if next, err := f.load(); err == nil {
			now = next
		} else {
			log.Warn("the last good certificates stay in use", "err", err)
		}
		last <- now
		return now, nil
	}
	return c, nil
}

func (f TLSFiles) load() (*tls.Config, error) {
	pair, err := f.pair()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // each handshake asks the present client CA
	}
	if f.ClientCA == "" {
		return c, nil
	}
	pem, err := tuner.ReadFile(f.ClientCA, tuner.MaxFile)
	if err != nil {
		return nil, fmt.Errorf("web.tls.clientCAFile: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("web.tls.clientCAFile: holds no PEM certificate")
	}
	return c, nil
}

// pair is the server's own certificate and its key.
func (f TLSFiles) pair() (tls.Certificate, error) {
	cert, err := tuner.ReadFile(f.Cert, tuner.MaxFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("web.tls.certFile: %w", err)
	}
	key, err := tuner.ReadFile(f.Key, tuner.MaxFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("web.tls.keyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("web.tls.certFile and keyFile: %w", err)
	}
	return pair, nil
}
