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
)

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
