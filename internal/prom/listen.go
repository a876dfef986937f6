package prom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// shutdownGrace is how long Close waits for replies that are being sent, after
// it cancelled the queries behind them.
const shutdownGrace = 5 * time.Second

// Listen serves Handler on a loopback address, such as "127.0.0.1:9090";
// an empty address is a free port of 127.0.0.1. It returns the URL to give to a
// client. Close stops it.
func (s *Server) Listen(addr string) (url string, err error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if err := checkLoopback(addr); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", addr, err)
	}
	web := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	if err := s.startServing(web, l); err != nil {
		return "", errors.Join(err, l.Close())
	}
	return "http://" + l.Addr().String(), nil
}

// checkLoopback refuses addresses that other machines could reach: the API has
// no authentication.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen address %q must be host:port: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listen address %q must be a loopback address, such as 127.0.0.1:9090", addr)
	}
	return nil
}

func (s *Server) startServing(web *http.Server, l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return ErrClosed
	}
	s.listeners = append(s.listeners, web)
	s.serving.Go(func() {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.o.Logger.Error("embedded Prometheus stopped listening", "address", l.Addr().String(), "err", err)
		}
	})
	return nil
}

// stopListening ends all listeners and waits for them.
func (s *Server) stopListening() error {
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	var errs []error
	for _, web := range listeners {
		if err := web.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop listening: %w", err), web.Close())
		}
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

// RoundTripper answers requests for any host by calling Handler in the caller's
// goroutine, without sockets: what a client needs to send thousands of queries
// of virtual time.
func (s *Server) RoundTripper() http.RoundTripper { return inProcess{s.handler} }

type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		closeBody(r)
		return nil, err
	}
	inbound := r.Clone(ctx)
	inbound.RequestURI = r.URL.RequestURI()
	if inbound.Body == nil {
		inbound.Body = http.NoBody
	}
	defer closeBody(r)
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(rec, inbound)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return rec.response(r), nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// recorder is an http.ResponseWriter in memory.
type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (rec *recorder) Header() http.Header { return rec.header }

func (rec *recorder) WriteHeader(status int) {
	if !rec.wrote {
		rec.status, rec.wrote = status, true
	}
}

func (rec *recorder) Write(b []byte) (int, error) {
	rec.WriteHeader(http.StatusOK)
	return rec.body.Write(b)
}

func (rec *recorder) response(r *http.Request) *http.Response {
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", rec.status, http.StatusText(rec.status)),
		StatusCode:    rec.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        rec.header,
		Body:          io.NopCloser(&rec.body),
		ContentLength: int64(rec.body.Len()),
		Request:       r,
	}
}
