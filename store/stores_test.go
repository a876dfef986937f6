package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

// backend is what every store offers.
type backend interface {
	Load(context.Context) (*store.Document, error)
	Swap(context.Context, *store.Document) error
	Watch(context.Context) <-chan store.Update
	LoadCheckpoint(context.Context) ([]byte, error)
	SaveCheckpoint(context.Context, []byte) error
}

// forEachStore runs test on each kind of store. open may be called many times
// and gives access to the same document.
func forEachStore(t *testing.T, test func(t *testing.T, open func() backend)) {
	t.Run("memory", func(t *testing.T) {
		m := store.NewMemory("pool")
		test(t, func() backend { return m })
	})
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pool.json")
		test(t, func() backend { return openFile(t, path) })
	})
}

func openFile(t *testing.T, path string) *store.File {
	t.Helper()
	f, err := store.OpenFile(store.FileOptions{Path: path, Pool: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSwap(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, s := t.Context(), open()
		if _, err := s.Load(ctx); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("load of nothing: got %v, want ErrNotFound", err)
		}
		for _, next := range []int64{1, 2, 3} {
			for wrong := int64(1); wrong < 6; wrong++ {
				if wrong != next && next > 1 {
					wantConflict(t, s.Swap(ctx, document("pool", wrong)), store.ConflictError{Stored: next - 1, Next: wrong})
				}
			}
			if err := s.Swap(ctx, document("pool", next)); err != nil {
				t.Fatalf("swap %d: %v", next, err)
			}
			got, err := open().Load(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(document("pool", next), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

// A document that was lost may come back above the revision its readers saw.
func TestSwapFirstMayHaveAnyRevision(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		if err := open().Swap(t.Context(), document("pool", 7)); err != nil {
			t.Fatal(err)
		}
		wantConflict(t, open().Swap(t.Context(), document("pool", 7)), store.ConflictError{Stored: 7, Next: 7})
	})
}

func wantConflict(t *testing.T, err error, want store.ConflictError) {
	t.Helper()
	var got *store.ConflictError
	if !errors.Is(err, store.ErrConflict) || !errors.As(err, &got) || *got != want {
		t.Errorf("got %v, want %+v", err, want)
	}
}

func TestSwapRefuses(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, s := t.Context(), open()
		invalid := document("pool", 1)
		invalid.Baseline.MinExternalReusableTokens = 0
		wantField(t, "invalid", s.Swap(ctx, invalid), "baseline.minExternalReusableTokens")
		wantField(t, "other pool", s.Swap(ctx, document("other", 1)), "pool")
		wantField(t, "nil", s.Swap(ctx, nil), "")
		if _, err := s.Load(ctx); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got %v, want nothing stored", err)
		}
	})
}

func TestStoredDocumentIsACopy(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, s := t.Context(), open()
		d := exampleDocument()
		d.Pool, d.Revision = "pool", 1
		want := d.Clone()
		if err := s.Swap(ctx, d); err != nil {
			t.Fatal(err)
		}
		d.Trial.ID = "changed"
		loaded, err := s.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		loaded.Trial.ID = "changed"
		again, err := s.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestCheckpoint(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, s := t.Context(), open()
		if _, err := s.LoadCheckpoint(ctx); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("load of nothing: got %v, want ErrNotFound", err)
		}
		for _, want := range []string{"first", "", "\x00\xff", strings.Repeat("x", store.MaxCheckpointBytes)} {
			in := []byte(want)
			if err := s.SaveCheckpoint(ctx, in); err != nil {
				t.Fatal(err)
			}
			clear(in)
			if got, err := open().LoadCheckpoint(ctx); err != nil || string(got) != want {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
			}
		}
		wantField(t, "too large", s.SaveCheckpoint(ctx, make([]byte, store.MaxCheckpointBytes+1)), "")
		if got, err := s.LoadCheckpoint(ctx); err != nil || len(got) != store.MaxCheckpointBytes {
			t.Errorf("after a refused write: got %d bytes, %v, want the old value", len(got), err)
		}
	})
}

// TestConcurrentWriters makes each write depend on what was read: a lost update
// leaves the count behind the number of successful writes.
func TestConcurrentWriters(t *testing.T) {
	const writers, each = 10, 100
	forEachStore(t, func(t *testing.T, open func() backend) {
		var wg sync.WaitGroup
		for range writers {
			s := open()
			wg.Go(func() {
				for range each {
					increment(t, s)
				}
			})
		}
		wg.Wait()
		d, err := open().Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Revision != writers*each || d.Baseline.MinExternalReusableTokens != writers*each {
			t.Errorf("got revision %d and count %v, want %d of both", d.Revision, d.Baseline.MinExternalReusableTokens, writers*each)
		}
	})
}

func increment(t *testing.T, s backend) {
	for {
		d, err := s.Load(t.Context())
		if errors.Is(err, store.ErrNotFound) {
			d, err = document("pool", 1), nil
			d.Revision, d.Baseline.MinExternalReusableTokens = 0, 0
		}
		if err != nil {
			t.Error(err)
			return
		}
		d.Revision++
		d.Baseline.MinExternalReusableTokens++
		switch err := s.Swap(t.Context(), d); {
		case err == nil:
			return
		case !errors.Is(err, store.ErrConflict):
			t.Error(err)
			return
		}
	}
}

func TestWatch(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := open()
		early := s.Watch(ctx)
		wantUpdate(t, early, 0, store.ErrNotFound)
		for revision := range int64(5) {
			swap(t, s, revision+1)
			wantUpdate(t, early, revision+1, nil)
		}
		late := s.Watch(ctx)
		wantUpdate(t, late, 5, nil)

		// Nobody reads: the latest wins and no writer waits.
		for revision := range int64(20) {
			swap(t, s, revision+6)
		}
		for _, ch := range []<-chan store.Update{early, late} {
			skipTo(t, ch, 25)
		}
		cancel()
		for _, ch := range []<-chan store.Update{early, late} {
			if u, open := <-ch; open {
				t.Errorf("got %+v after the end, want a closed channel", u)
			}
		}
	})
}

func TestWatchEndedBeforeItStarts(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() backend) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		for range open().Watch(ctx) {
			n++
		}
		if n > 1 {
			t.Errorf("got %d updates, want the current state at most", n)
		}
	})
}

func swap(t *testing.T, s backend, revision int64) {
	t.Helper()
	if err := s.Swap(t.Context(), document("pool", revision)); err != nil {
		t.Fatal(err)
	}
}

// wantUpdate takes the next update: a document of revision, or the error.
func wantUpdate(t *testing.T, ch <-chan store.Update, revision int64, target error) {
	t.Helper()
	u, open := <-ch
	switch {
	case !open:
		t.Fatal("the watch ended")
	case target != nil && (u.Document != nil || !errors.Is(u.Err, target)):
		t.Fatalf("got %+v, want error %v alone", u, target)
	case target == nil && (u.Err != nil || u.Document.Revision != revision):
		t.Fatalf("got %+v, want revision %d alone", u, revision)
	}
}

// skipTo takes updates until revision comes, which must be in order.
func skipTo(t *testing.T, ch <-chan store.Update, revision int64) {
	t.Helper()
	last := int64(0)
	for u := range ch {
		if u.Err != nil || u.Document.Revision <= last {
			t.Fatalf("got %+v after revision %d", u, last)
		}
		if last = u.Document.Revision; last == revision {
			return
		}
	}
	t.Fatalf("the watch ended at revision %d, want %d", last, revision)
}
