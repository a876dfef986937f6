// Package storetest is the contract of every store, as tests: what a tuner and a
// plugin rely on, wherever the document lives.
package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

// Backend is what every store offers.
type Backend interface {
	Load(context.Context) (*store.Document, error)
	Swap(context.Context, *store.Document) error
	Watch(context.Context) <-chan store.Update
	LoadCheckpoint(context.Context) ([]byte, error)
	SaveCheckpoint(context.Context, []byte) error
}

// Pool is the one whose documents the stores under test accept.
const Pool = "pool"

// Run tests a kind of store. fresh returns, for each test, a function that opens
// the same new and empty store as often as it is called, and without an end that
// the test has to wait for.
func Run(t *testing.T, fresh func(t *testing.T) func() Backend) {
	for name, test := range map[string]func(*testing.T, func() Backend){
		"swap":                             testSwap,
		"first swap may have any revision": testSwapFirstMayHaveAnyRevision,
		"swap refuses":                     testSwapRefuses,
		"stored document is a copy":        testStoredDocumentIsACopy,
		"checkpoint":                       testCheckpoint,
		"concurrent writers":               testConcurrentWriters,
		"watch":                            testWatch,
		"watch ended before it starts":     testWatchEndedBeforeItStarts,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

var written = time.Date(2026, 11, 30, 16, 11, 51, 0, time.UTC)

// document is a valid one without a trial.
func document(pool string, revision int64) *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion,
		Pool:       pool,
		Revision:   revision,
		UpdatedAt:  written,
		Baseline:   store.Params{MinExternalReusableTokens: store.Tokens(revision)},
	}
}

func trialDocument() *store.Document {
	d := document(Pool, 42)
	d.Trial = &store.Trial{
		ID:         "20261130T161151Z-0007",
		Candidate:  store.Params{MinExternalReusableTokens: store.Never},
		Assignment: store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: 7, Swapped: true},
		StartedAt:  written,
		ExpiresAt:  written.Add(10 * time.Minute),
	}
	return d
}

// wantRefusal wants an error that names the field; what was refused is name.
func wantRefusal(t *testing.T, name string, err error, field string) {
	t.Helper()
	var got *store.FieldError
	if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &got) || got.Field != field {
		t.Errorf("%s: got %v, want field %q refused", name, err, field)
	}
}

func testSwap(t *testing.T, open func() Backend) {
	ctx, s := t.Context(), open()
	if _, err := s.Load(ctx); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("load of nothing: got %v, want ErrNotFound", err)
	}
	for _, next := range []int64{1, 2, 3} {
		for wrong := int64(1); wrong < 6; wrong++ {
			if wrong != next && next > 1 {
				wantConflict(t, s.Swap(ctx, document(Pool, wrong)), store.ConflictError{Stored: next - 1, Next: wrong})
			}
		}
		if err := s.Swap(ctx, document(Pool, next)); err != nil {
			t.Fatalf("swap %d: %v", next, err)
		}
		got, err := open().Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(document(Pool, next), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A document that was lost may come back above the revision its readers saw.
func testSwapFirstMayHaveAnyRevision(t *testing.T, open func() Backend) {
	if err := open().Swap(t.Context(), document(Pool, 7)); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, open().Swap(t.Context(), document(Pool, 7)), store.ConflictError{Stored: 7, Next: 7})
}

func wantConflict(t *testing.T, err error, want store.ConflictError) {
	t.Helper()
	var got *store.ConflictError
	if !errors.Is(err, store.ErrConflict) || !errors.As(err, &got) || *got != want {
		t.Errorf("got %v, want %+v", err, want)
	}
}

func testSwapRefuses(t *testing.T, open func() Backend) {
	ctx, s := t.Context(), open()
	invalid := document(Pool, 1)
	invalid.Baseline.MinExternalReusableTokens = 0
	wantRefusal(t, "invalid", s.Swap(ctx, invalid), "baseline.minExternalReusableTokens")
	wantRefusal(t, "other pool", s.Swap(ctx, document("other", 1)), "pool")
	wantRefusal(t, "nil", s.Swap(ctx, nil), "")
	if _, err := s.Load(ctx); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want nothing stored", err)
	}
}

func testStoredDocumentIsACopy(t *testing.T, open func() Backend) {
	ctx, s := t.Context(), open()
	d := trialDocument()
	d.Pool, d.Revision = Pool, 1
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
}

func testCheckpoint(t *testing.T, open func() Backend) {
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
	wantRefusal(t, "too large", s.SaveCheckpoint(ctx, make([]byte, store.MaxCheckpointBytes+1)), "")
	if got, err := s.LoadCheckpoint(ctx); err != nil || len(got) != store.MaxCheckpointBytes {
		t.Errorf("after a refused write: got %d bytes, %v, want the old value", len(got), err)
	}
}

// testConcurrentWriters makes each write depend on what was read: a lost update
// leaves the count behind the number of successful writes.
func testConcurrentWriters(t *testing.T, open func() Backend) {
	const writers, each = 10, 100
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
}

func increment(t *testing.T, s Backend) {
	for {
		d, err := s.Load(t.Context())
		if errors.Is(err, store.ErrNotFound) {
			d, err = document(Pool, 1), nil
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

func testWatch(t *testing.T, open func() Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := open()
	early := s.Watch(ctx)
	WantUpdate(t, early, 0, store.ErrNotFound)
	for revision := range int64(5) {
		swap(t, s, revision+1)
		WantUpdate(t, early, revision+1, nil)
	}
	late := s.Watch(ctx)
	WantUpdate(t, late, 5, nil)

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
}

func testWatchEndedBeforeItStarts(t *testing.T, open func() Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for range open().Watch(ctx) {
		n++
	}
	if n > 1 {
		t.Errorf("got %d updates, want the current state at most", n)
	}
}

func swap(t *testing.T, s Backend, revision int64) {
	t.Helper()
	if err := s.Swap(t.Context(), document(Pool, revision)); err != nil {
		t.Fatal(err)
	}
}

// WantUpdate takes the next update: a document of revision, or the error.
func WantUpdate(t *testing.T, ch <-chan store.Update, revision int64, target error) {
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
