package kube

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// While the API server does not answer nobody leads, and a replica that is told to
// stop does not wait for it.
func TestLeadEndsWhileStandingBy(t *testing.T) {
	c := away(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := Lease{Cluster: c, Namespace: "llm", Name: "kvtuner", Duration: 15 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	done := make(chan error, 1)
	go func() { done <- l.Lead(ctx, func(context.Context) { t.Error("leads without a Lease") }) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestServeTellsALostTermFromAStop(t *testing.T) {
	l := Lease{Cluster: &Cluster{}, Name: "kvtuner", Logger: slog.New(slog.DiscardHandler)}
	for name, test := range map[string]struct {
		end  func(term, stop context.CancelFunc)
		want error
	}{
		"lost":    {func(term, _ context.CancelFunc) { term() }, ErrLostLease},
		"stopped": {func(_, stop context.CancelFunc) { stop() }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			term, lose := context.WithCancel(context.Background())
			defer lose()
			done := make(chan error, 1)
			go func() { done <- l.serve(ctx, term, func(work context.Context) { <-work.Done() }) }()
			synctest.Wait()
			test.end(lose, stop)
			if err := <-done; !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
		})
	}
}

// away is a cluster whose API server is not there.
func away(t *testing.T) *Cluster {
	t.Helper()
	c, err := Connect(writeKubeconfig(t, "http://127.0.0.1:1"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "llm" || c.Identity == "" {
		t.Errorf("connected as %q in %q", c.Identity, c.Namespace)
	}
	return c
}
