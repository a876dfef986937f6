package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

func historyNow() time.Time { return exampleTime.Add(24 * time.Hour) }

func openHistory(t *testing.T, o store.HistoryOptions) *store.History {
	t.Helper()
	if o.Now == nil {
		o.Now = historyNow
	}
	h, err := store.OpenHistory(o)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

func historyPath(t *testing.T) string { return filepath.Join(t.TempDir(), "history.db") }

func query(t *testing.T, h *store.History, f store.Filter) []store.Decision {
	t.Helper()
	got, err := h.Query(f)
	must(t, err)
	return got
}

func appendAll(t *testing.T, h *store.History, decisions ...store.Decision) {
	t.Helper()
	for _, d := range decisions {
		must(t, h.Append(d))
	}
}

func TestHistorySurvivesReopening(t *testing.T) {
	path := historyPath(t)
	want := []store.Decision{decision("a", 0), decision("a", 1)}
	h, err := store.OpenHistory(store.HistoryOptions{Path: path, Now: historyNow})
	must(t, err)
	appendAll(t, h, want...)
	must(t, h.Close())

	reader := openHistory(t, store.HistoryOptions{Path: path, ReadOnly: true})
	if diff := cmp.Diff(want, query(t, reader, store.Filter{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := reader.Append(decision("a", 2)); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("append to a read-only history: got %v", err)
	}
}

func TestHistoryAppendIsIdempotent(t *testing.T) {
	h := openHistory(t, store.HistoryOptions{Path: historyPath(t)})
	d := decision("a", 1)
	appendAll(t, h, d, d)
	inAnotherZone := d
	inAnotherZone.Time = d.Time.In(time.FixedZone("", 7200))
	appendAll(t, h, inAnotherZone)

	other := d
	other.Reason = "Another decision."
	if err := h.Append(other); !errors.Is(err, store.ErrConflict) {
		t.Errorf("same ID, other content: got %v, want ErrConflict", err)
	}
	appendAll(t, h, decision("b", 1)) // The same ID in another pool is another decision.
	if diff := cmp.Diff([]store.Decision{d, decision("b", 1)}, query(t, h, store.Filter{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHistoryAppendRefuses(t *testing.T) {
	h := openHistory(t, store.HistoryOptions{Path: historyPath(t)})
	wantField(t, "invalid", h.Append(store.Decision{}), "id")
	large := decision("a", 1)
	large.Reason = strings.Repeat("x", store.MaxDecisionBytes)
	wantField(t, "too large", h.Append(large), "evidence")
	if got := query(t, h, store.Filter{}); len(got) != 0 {
		t.Errorf("got %d decisions, want none", len(got))
	}
}

// TestHistoryQuery compares with a plain loop over all decisions.
func TestHistoryQuery(t *testing.T) {
	h := openHistory(t, store.HistoryOptions{Path: historyPath(t)})
	var all []store.Decision // By time, then pool: the order of the answer.
	for n := range 30 {
		for _, pool := range []string{"a", "b"} {
			all = append(all, decision(pool, n))
		}
	}
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(all)) {
		appendAll(t, h, all[i])
	}
	at := func(n int) time.Time { return exampleTime.Add(time.Duration(n) * time.Minute) }
	for _, f := range []store.Filter{
		{},
		{Pool: "a"},
		{Pool: "none"},
		{Kinds: []store.Kind{store.KindMove, store.KindAdopt}},
		{Since: at(5)},
		{Until: at(5)},
		{Since: at(5).Add(1), Until: at(20)},
		{Since: at(-100), Until: at(100)},
		{Since: at(100)},
		{Until: at(-100)},
		{Since: at(20), Until: at(5)},
		{Limit: 7},
		{Pool: "b", Kinds: []store.Kind{store.KindTrial}, Since: at(10), Limit: 1},
		{Since: time.Unix(-1, 0)},
	} {
		for _, f.NewestFirst = range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
				if diff := cmp.Diff(filter(all, f), query(t, h, f)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
	_, err := h.Query(store.Filter{Limit: -1})
	wantField(t, "negative limit", err, "limit")
}

func filter(all []store.Decision, f store.Filter) []store.Decision {
	var out []store.Decision
	for i := range all {
		d := all[i]
		if f.NewestFirst {
			d = all[len(all)-1-i]
		}
		switch {
		case f.Pool != "" && d.Pool != f.Pool,
			!f.Since.IsZero() && d.Time.Before(f.Since),
			!f.Until.IsZero() && !d.Time.Before(f.Until),
			len(f.Kinds) > 0 && !strings.Contains(fmt.Sprint(f.Kinds), string(d.Kind)),
			f.Limit > 0 && len(out) == f.Limit:
		default:
			out = append(out, d)
		}
	}
	return out
}

func TestHistoryGet(t *testing.T) {
	h := openHistory(t, store.HistoryOptions{Path: historyPath(t)})
	one, long := decision("a", 1), decision("a", 2)
	long.ID = one.ID + "0"
	third := decision("a", 3)
	appendAll(t, h, one, long, third, decision("b", 1))
	for _, test := range []struct {
		pool, id string
		want     store.Decision
	}{
		{"a", one.ID, one},
		{"a", long.ID, long},
		{"a", third.ID, third},
		{"a", third.ID[:15], third},
		{"", third.ID, third},
		{"b", "2", decision("b", 1)},
	} {
		got, err := h.Get(test.pool, test.id)
		must(t, err)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.pool, test.id, diff)
		}
	}
	for _, missing := range [][2]string{{"a", "1"}, {"b", third.ID}, {"none", one.ID}, {"a", "9"}} {
		if got, err := h.Get(missing[0], missing[1]); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: got %+v, %v, want ErrNotFound", missing, got, err)
		}
	}
	for _, ambiguous := range [][2]string{{"a", "2026"}, {"", one.ID}, {"a", ""}} {
		_, err := h.Get(ambiguous[0], ambiguous[1])
		wantField(t, fmt.Sprintf("%q", ambiguous), err, "id")
	}
}

func TestHistoryPools(t *testing.T) {
	h := openHistory(t, store.HistoryOptions{Path: historyPath(t)})
	appendAll(t, h, decision("b", 1), decision("a/x:1", 1), decision("b", 2))
	got, err := h.Pools()
	must(t, err)
	if diff := cmp.Diff([]string{"a/x:1", "b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	now := exampleTime
	path := historyPath(t)
	h, err := store.OpenHistory(store.HistoryOptions{Path: path, MaxPerPool: 5, MaxAge: time.Hour, Now: func() time.Time { return now }})
	must(t, err)
	for n := range 9 {
		appendAll(t, h, decision("a", n), decision("b", n/3))
	}
	wantNumbers := func(pool string, from, to int) {
		t.Helper()
		var want []store.Decision
		for n := from; n <= to; n++ {
			want = append(want, decision(pool, n))
		}
		if diff := cmp.Diff(want, query(t, h, store.Filter{Pool: pool})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	wantNumbers("a", 4, 8)
	wantNumbers("b", 0, 2)
	if _, err := h.Get("a", decision("a", 3).ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a dropped decision: got %v, want ErrNotFound", err)
	}

	now = exampleTime.Add(67 * time.Minute) // An hour after number 7.
	appendAll(t, h, decision("a", 60))
	if got := query(t, h, store.Filter{Pool: "a"}); len(got) != 3 || got[0].ID != decision("a", 7).ID {
		t.Errorf("got %d decisions from %s, want 7, 8 and 60", len(got), got[0].ID)
	}
	wantNumbers("b", 0, 2) // Not touched while the pool is quiet.

	must(t, h.Close())
	h = openHistory(t, store.HistoryOptions{Path: path, MaxPerPool: 2, Now: historyNow})
	appendAll(t, h, decision("a", 61))
	if got := query(t, h, store.Filter{Pool: "a"}); len(got) != 2 {
		t.Errorf("after lowering the limit: got %d decisions, want 2", len(got))
	}
}

func TestHistoryHeldByAnotherProcess(t *testing.T) {
	path := historyPath(t)
	openHistory(t, store.HistoryOptions{Path: path})
	for _, readOnly := range []bool{true, false} {
		_, err := store.OpenHistory(store.HistoryOptions{Path: path, ReadOnly: readOnly, LockTimeout: time.Millisecond})
		if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "ask that one over HTTP") {
			t.Errorf("got %v, want ErrLocked and the remedy", err)
		}
	}
}

func TestHistoryRefusesToOpen(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.db")
	write(t, empty, "")
	text := filepath.Join(dir, "text.db")
	write(t, text, "not a database")
	for name, test := range map[string]struct {
		o    store.HistoryOptions
		says string
	}{
		"no path":          {store.HistoryOptions{}, `path: "" is not allowed`},
		"negative limit":   {store.HistoryOptions{Path: "x", MaxPerPool: -1}, "max per pool: -1 is not allowed"},
		"negative age":     {store.HistoryOptions{Path: "x", MaxAge: -1}, "max age: -1ns is not allowed"},
		"negative timeout": {store.HistoryOptions{Path: "x", LockTimeout: -1}, "lock timeout: -1ns is not allowed"},
		"no directory":     {store.HistoryOptions{Path: filepath.Join(dir, "none", "h.db")}, "create the directory"},
		"nothing to read":  {store.HistoryOptions{Path: filepath.Join(dir, "h.db"), ReadOnly: true}, "not found"},
		"empty":            {store.HistoryOptions{Path: empty, ReadOnly: true}, "the file is empty: not found"},
		"no database":      {store.HistoryOptions{Path: text}, "corrupt"},
		"a directory":      {store.HistoryOptions{Path: dir}, "a folder or a device"},
	} {
		if _, err := store.OpenHistory(test.o); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, test.says)
		}
	}
}

// TestHistoryDamaged damages the file in many ways: the process must not crash,
// what fails must be ErrCorrupt with the remedy, and the file must stay.
func TestHistoryDamaged(t *testing.T) {
	path := historyPath(t)
	h, err := store.OpenHistory(store.HistoryOptions{Path: path, Now: historyNow})
	must(t, err)
	for n := range 60 {
		appendAll(t, h, decision("a", n))
	}
	must(t, h.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	found := 0
	for seed := range uint64(100) {
		damaged := damage(whole, rand.New(rand.NewPCG(seed, 0)))
		path := historyPath(t)
		write(t, path, string(damaged))
		err := useHistory(path)
		if err != nil && (!errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "move the file away")) {
			t.Errorf("seed %d: got %v, want ErrCorrupt and the remedy", seed, err)
		}
		if err != nil {
			found++
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("seed %d: the file is gone: %v", seed, err)
		}
	}
	if found < 20 {
		t.Errorf("%d of 100 damaged files were found corrupt, want most: the damage is too small to test anything", found)
	}
	t.Logf("%d of 100 damaged files found corrupt", found)
}

// damage cuts the file, or overwrites a part with zeros or noise.
func damage(whole []byte, rng *rand.Rand) []byte {
	raw := bytes.Clone(whole)
	at := rng.IntN(len(raw))
	switch part := raw[at:min(len(raw), at+1+rng.IntN(1<<14))]; rng.IntN(3) {
	case 0:
		return raw[:max(1, at)]
	case 1:
		clear(part)
	default:
		for i := range part {
			part[i] = byte(rng.Uint32())
		}
	}
	return raw
}

func useHistory(path string) error {
	h, err := store.OpenHistory(store.HistoryOptions{Path: path, Now: historyNow, MaxPerPool: 50})
	if err != nil {
		return err
	}
	_, err = h.Query(store.Filter{})
	return errors.Join(err, h.Append(decision("a", 100)), h.Close())
}
