package configmap_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
)

// await takes updates until one is as wanted.
func await(t *testing.T, ch <-chan store.Update, what string, wanted func(store.Update) bool) {
	t.Helper()
	for u := range ch {
		if wanted(u) {
			return
		}
		t.Logf("waiting for %s: %+v", what, u)
	}
	t.Fatalf("the watch ended before %s", what)
}

func tokens(n store.Tokens) func(store.Update) bool {
	return func(u store.Update) bool { return u.Err == nil && u.Document.Baseline.MinExternalReusableTokens == n }
}

func failed(want error) func(store.Update) bool {
	return func(u store.Update) bool { return errors.Is(u.Err, want) }
}

func (s *apiServer) put(t *testing.T, revision int64, n store.Tokens) {
	raw := formatted(t, document(revision, n))
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = raw })
}

func TestWatchFollowsWhateverHappens(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates := s.open(t, "qwen", "").Watch(ctx)
	await(t, updates, "nothing", failed(store.ErrNotFound))
	s.put(t, 1, 1)
	await(t, updates, "the first", tokens(1))
	s.put(t, 1, 2)
	await(t, updates, "an edit without a new revision", tokens(2))
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = "?" })
	await(t, updates, "a broken document", failed(store.ErrInvalid))
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["stop"] = "incident 7" })
	await(t, updates, "the kill switch", failed(store.ErrStopped))
	s.edit(func(cm *corev1.ConfigMap) { delete(cm.Data, "stop") })
	await(t, updates, "the document, still broken", failed(store.ErrInvalid))
	s.delete()
	await(t, updates, "the removal", failed(store.ErrNotFound))
	s.put(t, 2, 3)
	await(t, updates, "another ConfigMap", tokens(3))
}

// What else changes in the ConfigMap is no news.
func TestWatchTellsOfTheDocumentOnly(t *testing.T) {
	s := startServer(t)
	s.put(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates := s.open(t, "qwen", "").Watch(ctx)
	await(t, updates, "the first", tokens(1))
	for range 5 {
		s.edit(func(cm *corev1.ConfigMap) { cm.Data["status.yaml"] += "x" })
	}
	s.put(t, 2, 2)
	if u := <-updates; !tokens(2)(u) {
		t.Errorf("got %+v, want the second document next", u)
	}
}

// A watch that is cut while its past is compacted reads anew (410 Gone).
func TestWatchSurvivesExpiry(t *testing.T) {
	s := startServer(t)
	s.put(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates := s.open(t, "qwen", "").Watch(ctx)
	await(t, updates, "the first", tokens(1))
	for n := store.Tokens(2); n < 5; n++ {
		s.setRefuse(func(r *http.Request) *metav1.Status {
			if r.URL.Query().Get("watch") != "" {
				return failure(500, metav1.StatusReasonInternalError)
			}
			return nil
		})
		s.cutWatches()
		s.put(t, int64(n), n)
		s.compact()
		s.setRefuse(nil)
		await(t, updates, "what was written meanwhile", tokens(n))
	}
}

// The API server is away, which is told, and comes back.
func TestWatchSurvivesAnOutage(t *testing.T) {
	s := startServer(t)
	s.put(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates := s.open(t, "qwen", "").Watch(ctx)
	await(t, updates, "the first", tokens(1))
	s.compact()
	s.setRefuse(func(*http.Request) *metav1.Status { return failure(503, metav1.StatusReasonServiceUnavailable) })
	s.put(t, 2, 2)
	s.cutWatches()
	await(t, updates, "the outage or the last word before it", func(u store.Update) bool { return u.Err != nil || tokens(2)(u) })
	s.setRefuse(nil)
	s.put(t, 3, 3)
	await(t, updates, "the next document", tokens(3))
}

func TestWatchAnswersWhereThereIsNoServer(t *testing.T) {
	s := startServer(t)
	c := s.open(t, "qwen", "")
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if u := <-c.Watch(ctx); u.Err == nil || errors.Is(u.Err, store.ErrNotFound) {
		t.Errorf("got %+v, want an error", u)
	}
}
