package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/store/storetest"
)

// The contract of every store, on the real thing.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() storetest.Backend {
		ns := namespace(t)
		return func() storetest.Backend { return open(t, ns, storetest.Pool, "") }
	})
}

// TestConflictStorm: 10 writers take 100 turns each. Each write carries the writer
// and its turn, so that the history can be checked: every revision once, every turn
// in order, nothing lost.
func TestConflictStorm(t *testing.T) {
	const writers, turns = 10, 100
	ns := namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type write struct {
		revision     int64
		writer, turn int
	}
	var mu sync.Mutex
	var history []write
	conflicts := 0
	began := time.Now()
	var running sync.WaitGroup
	for w := range writers {
		s := open(t, ns, "storm", "")
		running.Go(func() {
			for turn := 0; turn < turns; {
				d, err := s.Load(ctx)
				if errors.Is(err, store.ErrNotFound) {
					d, err = document("storm", 0, 1), nil
				}
				if err != nil {
					t.Error(err)
					return
				}
				d.Revision++
				d.Baseline.MinExternalReusableTokens = store.Tokens(1 + w*turns + turn)
				err = s.Swap(ctx, d)
				mu.Lock()
				switch {
				case err == nil:
					history = append(history, write{d.Revision, w, turn})
					turn++
				case errors.Is(err, store.ErrConflict):
					conflicts++
				default:
					t.Errorf("writer %d: %v", w, err)
					turn = turns
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	t.Logf("%d writes, %d conflicts, %v", len(history), conflicts, time.Since(began).Round(time.Millisecond))
	slices.SortFunc(history, func(a, b write) int { return int(a.revision - b.revision) })
	next := make([]int, writers)
	for i, h := range history {
		if h.revision != int64(i+1) || h.turn != next[h.writer] {
			t.Fatalf("write %d of the history: %+v, want revision %d and turn %d", i, h, i+1, next[h.writer])
		}
		next[h.writer]++
	}
	d, err := open(t, ns, "storm", "").Load(ctx)
	if err != nil || d.Revision != writers*turns {
		t.Errorf("the document is at %+v, %v, want revision %d", d, err, writers*turns)
	}
}

// TestWatchExpires: the API server cannot go on from where a watch was (410 Gone),
// because etcd has forgotten it.
func TestWatchExpires(t *testing.T) {
	ns := namespace(t)
	s := open(t, ns, "expires", "")
	if err := s.Swap(t.Context(), document("expires", 1, 1)); err != nil {
		t.Fatal(err)
	}
	updates := s.Watch(t.Context())
	await(t, updates, "the first document", revision(1))
	seen, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "kvtuner-expires", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	plane.stopAPIServer()
	compact(t)
	if err := plane.startAPIServer(); err != nil {
		t.Fatal(err)
	}
	past, err := admin.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: seen.ResourceVersion})
	if err == nil {
		err = apierrors.FromObject((<-past.ResultChan()).Object)
		past.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Fatalf("a watch from where the plugin was: %v, want 410 Gone", err)
	}
	if err := s.Swap(t.Context(), document("expires", 2, 2)); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "what was written after the expiry", revision(2))
}

func TestConfigMapIsDeletedEditedAndBroken(t *testing.T) {
	ns := namespace(t)
	s := open(t, ns, "hands", "tuner-0")
	ctx := t.Context()
	for n := range int64(3) {
		if err := s.Swap(ctx, document("hands", n+1, 1024)); err != nil {
			t.Fatal(err)
		}
	}
	updates := open(t, ns, "hands", "").Watch(ctx)
	await(t, updates, "the document", revision(3))

	edit(t, ns, "kvtuner-hands", func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = "oops" })
	await(t, updates, "the broken document", failed(store.ErrInvalid))
	if err := s.Swap(ctx, document("hands", 4, 1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("over a broken document: %v", err)
	}

	edit(t, ns, "kvtuner-hands", func(cm *corev1.ConfigMap) { delete(cm.Data, "parameters.json") })
	await(t, updates, "the removal of the key", failed(store.ErrNotFound))
	if err := s.Swap(ctx, document("hands", 4, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "the document again", revision(4))

	if err := admin.CoreV1().ConfigMaps(ns).Delete(ctx, "kvtuner-hands", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "the deletion", failed(store.ErrNotFound))
	if err := s.Swap(ctx, document("hands", 5, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, updates, "the new ConfigMap", revision(5))

	edit(t, ns, "kvtuner-hands", func(cm *corev1.ConfigMap) { cm.Data["stop"] = "incident 7" })
	await(t, updates, "the kill switch", failed(store.ErrStopped))
	edit(t, ns, "kvtuner-hands", func(cm *corev1.ConfigMap) { delete(cm.Data, "stop") })
	await(t, updates, "the document after the stop", revision(5))
}

// TestAppliedByAManifest: a document that someone applies is not fought over, one
// that someone edited is.
func TestAppliedByAManifest(t *testing.T) {
	ns := namespace(t)
	ctx := t.Context()
	s := open(t, ns, "held", "tuner-0")
	if err := s.Swap(ctx, document("held", 1, 1024)); err != nil {
		t.Fatal(err)
	}
	raw, err := store.Format(document("held", 2, 64))
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kvtuner-held"},"data":{"parameters.json":%q}}`, raw)
	force := true
	patch := func(body string) {
		t.Helper()
		if _, err := admin.CoreV1().ConfigMaps(ns).Patch(ctx, "kvtuner-held", "application/apply-patch+yaml", []byte(body),
			metav1.PatchOptions{FieldManager: "flux", Force: &force}); err != nil {
			t.Fatal(err)
		}
	}
	patch(manifest)
	if _, err := s.Load(ctx); !errors.Is(err, configmap.ErrHeld) {
		t.Errorf("load: got %v, want it held", err)
	}
	if err := s.Swap(ctx, document("held", 3, 1)); !errors.Is(err, configmap.ErrHeld) {
		t.Errorf("swap: got %v, want it held", err)
	}
	// The manifest gives the key up; what it said is edited by hand once more.
	patch(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kvtuner-held"}}`)
	edit(t, ns, "kvtuner-held", func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = string(raw) })
	if d, err := s.Load(ctx); err != nil || d.Baseline.MinExternalReusableTokens != 64 {
		t.Errorf("got %+v, %v, want what the hand wrote", d, err)
	}
	if err := s.Swap(ctx, document("held", 3, 1)); err != nil {
		t.Errorf("swap after the release: %v", err)
	}
}
