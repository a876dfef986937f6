package kvevents

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/plugin"
)

func (x *index) take(t testing.TB, events ...testEvent) {
	t.Helper()
	if err := decode(batch(1, events...), x.apply); err != nil {
		t.Fatal(err)
	}
}

func ids(n ...uint64) []any {
	out := make([]any, len(n))
	for i, id := range n {
		out[i] = id
	}
	return out
}

// matchIn asks for a prompt and fails unless it can be told.
func matchIn(t testing.TB, x *index, p Prompt) plugin.PrefixMatch {
	t.Helper()
	m, blockSize, why := x.match(&chains{prompt: &p})
	if why != lookupKnown || blockSize != testBlock {
		t.Fatalf("match: %s, block size %d", lookupNames[why], blockSize)
	}
	return m
}

func TestTiersBeginAtTheirOwnFirstBlock(t *testing.T) {
	prompt := sequenceOf(0, 0, 5)
	tests := map[string]struct {
		events []testEvent
		want   plugin.PrefixMatch
	}{
		"nothing": {
			events: []testEvent{stored("GPU", nil, ids(9), 7, 7, 7, 7)},
			want:   plugin.PrefixMatch{ByTier: map[string]int{}},
		},
		"GPU then CPU": {
			events: []testEvent{
				stored("GPU", nil, ids(1, 2), prompt[:8]...),
				stored("CPU", uint64(2), ids(3, 4), prompt[8:16]...),
			},
			want: plugin.PrefixMatch{CachedBlocks: 4, ByTier: map[string]int{"gpu": 2}},
		},
		"both from the start": {
			events: []testEvent{
				stored("GPU", nil, ids(1, 2, 3, 4, 5), prompt...),
				{tag: "BlockStored", medium: "CPU", hashes: ids(1, 2, 3), group: -1},
				removed("GPU", uint64(2)),
			},
			want: plugin.PrefixMatch{CachedBlocks: 5, ByTier: map[string]int{"gpu": 1, "cpu": 3}},
		},
		"a hole in all": {
			events: []testEvent{
				stored("GPU", nil, ids(1, 2, 3, 4, 5), prompt...),
				removed("GPU", uint64(1)),
			},
			want: plugin.PrefixMatch{ByTier: map[string]int{}},
		},
		"no medium is the GPU": {
			events: []testEvent{stored("", nil, ids(1), prompt[:4]...), removed("GPU", uint64(77))},
			want:   plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"two copies, one removed": {
			events: []testEvent{
				stored("GPU", nil, ids(1), prompt[:4]...),
				stored("gpu", nil, ids(1), prompt[:4]...),
				removed("GPU", uint64(1)),
			},
			want: plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"the CPU tells after the GPU has dropped it": {
			events: []testEvent{
				stored("GPU", nil, ids(1, 2), prompt[:8]...),
				removed("GPU", uint64(1), uint64(2)),
				{tag: "BlockStored", medium: "CPU", hashes: ids(1, 2), group: -1},
			},
			want: plugin.PrefixMatch{CachedBlocks: 2, ByTier: map[string]int{"cpu": 2}},
		},
		"a chunk named by its last block": {
			events: []testEvent{
				stored("GPU", nil, ids(1, 2, 3, 4, 5), prompt...),
				{tag: "BlockStored", medium: "CPU", hashes: ids(2, 4), size: 2 * testBlock, group: -1},
				removed("CPU", uint64(4)),
			},
			want: plugin.PrefixMatch{CachedBlocks: 5, ByTier: map[string]int{"gpu": 5, "cpu": 2}},
		},
		"hashes as bytes": {
			events: []testEvent{
				stored("GPU", nil, []any{[]byte("0123456789abcdef0123456789abcdeX"), []byte("0123456789abcdef0123456789abcdeY")}, prompt[:8]...),
				removed("GPU", []byte("0123456789abcdef0123456789abcdeY")),
			},
			want: plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"negative hashes": {
			events: []testEvent{
				stored("GPU", nil, []any{int64(-5)}, prompt[:4]...),
				stored("GPU", int64(-5), []any{int64(-6)}, prompt[4:8]...),
			},
			want: plugin.PrefixMatch{CachedBlocks: 2, ByTier: map[string]int{"gpu": 2}},
		},
		"an unknown parent is left out": {
			events: []testEvent{
				stored("GPU", nil, ids(1), prompt[:4]...),
				stored("GPU", uint64(404), ids(2), prompt[4:8]...),
			},
			want: plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"a sliding window is another group": {
			events: []testEvent{
				{tag: "BlockStored", medium: "GPU", hashes: ids(1, 2), tokens: prompt[:8], size: testBlock, group: 0, spec: "sliding_window"},
				{tag: "BlockStored", medium: "GPU", hashes: ids(1), tokens: prompt[:4], size: testBlock, group: 1, spec: "full_attention"},
				{tag: "BlockRemoved", medium: "GPU", hashes: ids(1), group: 0},
			},
			want: plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"another group of no known kind": {
			events: []testEvent{
				{tag: "BlockStored", medium: "GPU", hashes: ids(1, 2), tokens: prompt[:8], size: testBlock, group: 1},
				{tag: "BlockStored", medium: "GPU", hashes: ids(1), tokens: prompt[:4], size: testBlock, group: 0},
			},
			want: plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
		"cleared": {
			events: []testEvent{stored("GPU", nil, ids(1), prompt[:4]...), cleared, stored("GPU", nil, ids(9), 7, 7, 7, 7)},
			want:   plugin.PrefixMatch{ByTier: map[string]int{}},
		},
		"an event of the future": {
			events: []testEvent{{tag: "BlockMoved"}, stored("GPU", nil, ids(1), prompt[:4]...)},
			want:   plugin.PrefixMatch{CachedBlocks: 1, ByTier: map[string]int{"gpu": 1}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x := testIndex(t, "")
			x.take(t, test.events...)
			if diff := cmp.Diff(test.want, matchIn(t, x, Prompt{Tokens: prompt})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPromptsAreToldApartByAdapterAndSalt(t *testing.T) {
	tokens := sequenceOf(0, 0, 2)
	store := func(adapter string, extra []any, hashes ...uint64) testEvent {
		e := stored("GPU", nil, ids(hashes...), tokens...)
		e.adapter, e.extra = adapter, extra
		return e
	}
	x := testIndex(t, "")
	x.take(t,
		store("", []any{nil, nil}, 1, 2),
		store("sql", []any{[]any{"sql"}, []any{"sql"}}, 3, 4),
		store("", []any{[]any{"tenant"}, nil}, 5, 6),
		store("sql", []any{[]any{"sql", "tenant"}, []any{"sql"}}, 7, 8),
		removed("GPU", uint64(2), uint64(7)),
	)
	for _, test := range []struct {
		model, salt string
		want        int
	}{
		{"base", "", 1}, {"sql", "", 2}, {"base", "tenant", 2}, {"sql", "tenant", 0}, {"base", "other", 0},
	} {
		if got := matchIn(t, x, Prompt{Tokens: tokens, Model: test.model, Salt: test.salt}).CachedBlocks; got != test.want {
			t.Errorf("model %q, salt %q: %d blocks, want %d", test.model, test.salt, got, test.want)
		}
	}
}

func TestSaltIsUnknownToEnginesWithoutExtraKeys(t *testing.T) {
	x := testIndex(t, "")
	x.take(t, stored("GPU", nil, ids(1), 1, 2, 3, 4))
	if _, _, why := x.match(&chains{prompt: &Prompt{Salt: "tenant"}}); why != lookupSalt {
		t.Errorf("got %s", lookupNames[why])
	}
}

func TestSkippedEventsAreCounted(t *testing.T) {
	x := testIndex(t, `{"blockSize": 4}`)
	wide := stored("GPU", nil, ids(1), 1, 2, 3, 4, 5, 6, 7, 8)
	wide.size = 8
	x.take(t,
		wide,
		stored("GPU", uint64(404), ids(1), 1, 2, 3, 4),
		stored("GPU", nil, ids(1), 1, 2, 3, 4),
		stored("GPU", nil, ids(1), 5, 6, 7, 8),
		stored("GPU", nil, ids(2), 1, 2, 3, 4),
		removed("CPU", uint64(404)),
		testEvent{tag: "Else"},
	)
	for i := range 9 {
		x.take(t, stored(fmt.Sprint("tier", i), nil, ids(1), 1, 2, 3, 4))
	}
	want := map[skip]float64{skipBlockSize: 1, skipUnknownParent: 1, skipConflict: 2, skipUnknownBlock: 1, skipUnknownEvent: 1, skipTier: 3}
	for why := range skip(skips) {
		if got := testutil.ToFloat64(x.metrics.skipped[why]); got != want[why] {
			t.Errorf("%s: %v, want %v", skipNames[why], got, want[why])
		}
	}
}

func TestUnreadableEventsAreErrors(t *testing.T) {
	good := stored("GPU", nil, ids(1), 1, 2, 3, 4)
	for name, spoil := range map[string]func(*testEvent){
		"hash of text":       func(e *testEvent) { e.hashes = []any{"one"} },
		"empty hash":         func(e *testEvent) { e.hashes = []any{[]byte{}} },
		"parent of text":     func(e *testEvent) { e.parent = "root" },
		"negative size":      func(e *testEvent) { e.size = -4 },
		"negative group":     func(e *testEvent) { e.group = 1 << 30 },
		"extra keys missing": func(e *testEvent) { e.extra = []any{} },
		"extra keys of text": func(e *testEvent) { e.extra = []any{"salt"} },
	} {
		t.Run(name, func(t *testing.T) {
			e := good
			spoil(&e)
			if err := decode(batch(1, e), testIndex(t, "").apply); err == nil {
				t.Error("no error")
			}
		})
	}
}

// randomEvent is one thing an engine does to a sequence out of a few families
// that share beginnings.
func randomEvent(t *rapid.T, e *testEngine) (testEvent, bool) {
	tokens := sequenceOf(rapid.IntRange(0, 2).Draw(t, "family"), rapid.IntRange(0, 3).Draw(t, "shared"), 6)
	tier := rapid.SampledFrom([]string{"gpu", "cpu", "storage"}).Draw(t, "tier")
	from := rapid.IntRange(0, 5).Draw(t, "from")
	to := rapid.IntRange(from+1, 6).Draw(t, "to")
	switch rapid.IntRange(0, 20).Draw(t, "op") {
	case 0:
		return e.clear(), true
	case 1, 2, 3, 4, 5:
		return e.evict(tier, tokens, from)
	case 6, 7, 8, 9:
		if !e.told(tokens, to) {
			return testEvent{}, false
		}
		return e.place(tier, tokens, from, to), true
	default:
		if from > 0 && !e.told(tokens, from) {
			return testEvent{}, false
		}
		return e.store(tier, tokens, from, to), true
	}
}

// told says whether blocks below n are held somewhere, as an engine's events
// refer to such blocks only.
func (e *testEngine) told(tokens []uint32, n int) bool {
	for i := 1; i <= n; i++ {
		if !e.anywhere(tokens[:i*testBlock]) {
			return false
		}
	}
	return true
}

func TestIndexAgreesWithTheEngine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e, x := newEngine(), testIndex(t, `{"blockSize": 4}`)
		for range rapid.IntRange(1, 60).Draw(rt, "n") {
			if event, ok := randomEvent(rt, e); ok {
				x.take(t, event)
			}
			tokens := sequenceOf(rapid.IntRange(0, 2).Draw(rt, "asked"), rapid.IntRange(0, 3).Draw(rt, "askedShared"), 6)
			all, byTier := e.prefix(tokens)
			if diff := cmp.Diff(plugin.PrefixMatch{CachedBlocks: all, ByTier: byTier}, matchIn(t, x, Prompt{Tokens: tokens})); diff != "" {
				rt.Fatal(diff)
			}
			checkBlocks(rt, x.blocks)
		}
	})
}

func TestFullIndexNeverClaimsMoreThanTheEngineHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		e, x := newEngine(), testIndex(t, fmt.Sprintf(`{"blockSize": 4, "maxBlocks": %d}`, limit))
		for range rapid.IntRange(1, 60).Draw(rt, "n") {
			if event, ok := randomEvent(rt, e); ok {
				x.take(t, event)
			}
			tokens := sequenceOf(rapid.IntRange(0, 2).Draw(rt, "asked"), 2, 6)
			all, byTier := e.prefix(tokens)
			got := matchIn(t, x, Prompt{Tokens: tokens})
			if got.CachedBlocks > all {
				rt.Fatalf("claims %d blocks, of %d", got.CachedBlocks, all)
			}
			for tier, n := range got.ByTier {
				if n > byTier[tier] {
					rt.Fatalf("%s: claims %d blocks, of %d", tier, n, byTier[tier])
				}
			}
			checkBlocks(rt, x.blocks)
		}
	})
}

// checkBlocks verifies that lists and maps agree and nothing is over the limit.
func checkBlocks(t interface{ Fatalf(string, ...any) }, b *blocks) {
	n := b.held.len + b.gone.len
	if n > b.max || n != len(b.byEngine) || n != len(b.byContent) || n+len(b.free) != len(b.slots) {
		t.Fatalf("limit %d: %d held, %d gone, %d and %d by hash, %d free of %d slots",
			b.max, b.held.len, b.gone.len, len(b.byEngine), len(b.byContent), len(b.free), len(b.slots))
	}
	for _, l := range []*recency{&b.held, &b.gone} {
		seen, last := 0, none
		for slot := l.front; slot != none; slot = b.slots[slot].next {
			if b.slots[slot].prev != last || b.listOf(slot) != l {
				t.Fatalf("slot %d is linked wrongly", slot)
			}
			seen, last = seen+1, slot
		}
		if seen != l.len || last != l.back {
			t.Fatalf("list of %d has %d", l.len, seen)
		}
	}
}

func TestFullIndexForgetsTheLeastRecentlyUsed(t *testing.T) {
	x := testIndex(t, `{"maxBlocks": 4}`)
	a, b := sequenceOf(0, 0, 2), sequenceOf(1, 0, 2)
	x.take(t, stored("GPU", nil, ids(1, 2), a...), stored("GPU", nil, ids(3, 4), b...))
	matchIn(t, x, Prompt{Tokens: a})
	x.take(t, stored("GPU", nil, ids(5), 7, 7, 7, 7))
	if got := matchIn(t, x, Prompt{Tokens: a}).CachedBlocks; got != 2 {
		t.Errorf("the prompt asked for last has %d blocks, want 2", got)
	}
	if got := matchIn(t, x, Prompt{Tokens: b}).CachedBlocks; got != 1 {
		t.Errorf("the other has %d blocks, want its first", got)
	}
	if got := testutil.ToFloat64(x.metrics.evicted); got != 1 {
		t.Errorf("%v evicted", got)
	}
}

// TestCostOfAnEventIsBounded: chunks that overlap name the same blocks over and
// over.
func TestCostOfAnEventIsBounded(t *testing.T) {
	const limit = 1000
	x := testIndex(t, fmt.Sprintf(`{"blockSize": 4, "maxBlocks": %d}`, limit))
	parent := any(nil)
	for i := range uint32(limit) {
		x.take(t, stored("GPU", parent, ids(uint64(i)), i, i, i, i))
		parent = uint64(i)
	}
	honest := testEvent{tag: "BlockStored", medium: "CPU", hashes: ids(limit - 1), size: 4 * limit, group: -1}
	x.take(t, honest)
	hostile := honest
	for range 100 {
		hostile.hashes = append(hostile.hashes, uint64(limit-1))
	}
	before := testutil.ToFloat64(x.metrics.stored)
	if err := decode(batch(1, hostile), x.apply); !errors.Is(err, errTooMany) {
		t.Errorf("error %v, want %v", err, errTooMany)
	}
	if got := testutil.ToFloat64(x.metrics.stored) - before; got > limit {
		t.Errorf("one event stored %g blocks of %d", got, limit)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	const limit = 50_000
	x := testIndex(t, fmt.Sprintf(`{"blockSize": 4, "maxBlocks": %d}`, limit))
	before := heap()
	for i := range uint32(4 * limit) {
		x.take(t, stored("GPU", nil, ids(uint64(i)), i, i, i, i))
	}
	grown := heap() - before
	t.Logf("%d blocks: %d bytes, %d a block", x.len(), grown, grown/limit)
	if x.len() != limit || grown > 250*limit {
		t.Errorf("%d blocks take %d bytes", x.len(), grown)
	}
	runtime.KeepAlive(x)
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
