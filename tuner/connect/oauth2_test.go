package connect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/kvtuner/kvtuner/tuner"
)

// The secret does not travel on to where an authority, or who sits in its place,
// redirects.
func TestSecretsAreNotRedirected(t *testing.T) {
	reached := false
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { reached = true })
	authority := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect) // with the body, which may hold the secret
	})
	err := ask(t, tuner.PrometheusConfig{URL: "http://127.0.0.1:1", OAuth2: tuner.OAuth2{
		ClientID: "kvtuner", ClientSecretFile: write(t, "secret", "hunter2"), TokenURL: authority.URL,
	}})
	if err == nil || reached {
		t.Errorf("got %v; the other server was asked: %v", err, reached)
	}
}

// An authority that hangs holds each query for its own time, not for that of all
// the queries before it, and is asked once.
func TestQueriesWaitTogetherForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const authorityTakes, queryMay = time.Minute, 10 * time.Second
		var asked atomic.Int32
		transport := &tokens{
			next: roundTrip(func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil }),
			issue: func() (*oauth2.Token, error) {
				asked.Add(1)
				time.Sleep(authorityTakes)
				return &oauth2.Token{AccessToken: "token"}, nil
			},
		}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), queryMay)
			defer cancel()
			_, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://x/", nil).WithContext(ctx))
			return err
		}
		start, failed := time.Now(), make(chan error)
		for range 10 {
			go func() { failed <- ask() }()
		}
		for range 10 {
			if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		if waited := time.Since(start); waited != queryMay || asked.Load() != 1 {
			t.Errorf("waited %v, asked %d times", waited, asked.Load())
		}
		time.Sleep(authorityTakes)
		if err := ask(); err != nil || asked.Load() != 1 {
			t.Errorf("with the token that came: %v, asked %d times", err, asked.Load())
		}
	})
}
