package kvevents

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// testEvent is an event as an engine writes it.
type testEvent struct {
	tag     string
	hashes  []any // uint64, int64 or []byte
	parent  any   // nil: none
	tokens  []uint32
	size    int
	medium  string
	adapter string
	extra   []any // an entry a block: nil, or []any
	group   int   // -1: none
	spec    string
}

func stored(medium string, parent any, hashes []any, tokens ...uint32) testEvent {
	return testEvent{tag: "BlockStored", medium: medium, parent: parent, hashes: hashes, tokens: tokens, size: testBlock, group: -1}
}

func removed(medium string, hashes ...any) testEvent {
	return testEvent{tag: "BlockRemoved", medium: medium, hashes: hashes, group: -1}
}

var cleared = testEvent{tag: "AllBlocksCleared"}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (e *testEvent) fields() (names []string, values []any) {
	var group any
	if e.group >= 0 {
		group = e.group
	}
	switch e.tag {
	case "BlockStored":
		tokens := make([]any, len(e.tokens))
		for i, t := range e.tokens {
			tokens[i] = t
		}
		var extra any
		if e.extra != nil {
			extra = e.extra
		}
		return append(storedFields, "kv_cache_spec_sliding_window", "locality"),
			[]any{e.hashes, e.parent, tokens, e.size, nil, optional(e.medium), optional(e.adapter), extra, group, optional(e.spec), nil, "local"}
	case "BlockRemoved":
		return append(removedFields, "locality"), []any{e.hashes, optional(e.medium), group, "local"}
	default:
		return nil, nil
	}
}

// asArray and asMap are vLLM's two encodings.
func (e *testEvent) asArray() []byte {
	_, values := e.fields()
	return pack(nil, append([]any{e.tag}, values...))
}

func (e *testEvent) asMap() []byte {
	names, values := e.fields()
	b := msgp.AppendMapHeader(nil, uint32(1+len(names)))
	b = pack(pack(b, "type"), e.tag)
	for i, name := range names {
		b = pack(pack(b, name), values[i])
	}
	return b
}

// batch is a message as vLLM writes it: unique, for its time stamp.
func batch(ts float64, events ...testEvent) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, ts)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		b = append(b, events[i].asArray()...)
	}
	return msgp.AppendInt(b, 0)
}

func mapBatch(ts float64, events ...testEvent) []byte {
	b := msgp.AppendMapHeader(nil, 3)
	b = pack(pack(b, "ts"), ts)
	b = msgp.AppendArrayHeader(pack(b, "events"), uint32(len(events)))
	for i := range events {
		b = append(b, events[i].asMap()...)
	}
	return pack(pack(b, "data_parallel_rank"), 0)
}

func pack(b []byte, v any) []byte {
	switch v := v.(type) {
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, e := range v {
			b = pack(b, e)
		}
		return b
	default:
		b, err := msgp.AppendIntf(b, v)
		if err != nil {
			panic(fmt.Sprintf("pack %T: %v", v, err))
		}
		return b
	}
}

const testBlock = 4

// testEngine is an engine's caches: what each tier holds, and the messages that
// told of it.
type testEngine struct {
	buffer  []message // what a replay has
	steps   int       // how many messages the buffer keeps; 0 is all
	next    uint64
	ts      float64
	seed    uint64
	hashes  map[string]uint64         // by the tokens of the whole prefix
	parents map[string]string         // by the same
	holds   map[string]map[string]int // tier -> prefix -> copies
}

func newEngine() *testEngine {
	e := &testEngine{}
	e.restart()
	return e
}

// restart loses caches, messages and numbering, and hashes otherwise.
func (e *testEngine) restart() {
	*e = testEngine{steps: e.steps, ts: e.ts, seed: e.seed + 1, hashes: map[string]uint64{}, parents: map[string]string{}, holds: map[string]map[string]int{}}
}

func prefixKey(tokens []uint32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.BigEndian.AppendUint32(b, t)
	}
	return string(b)
}

// hash is this engine's name of the block at the end of a prefix.
func (e *testEngine) hash(tokens []uint32) uint64 {
	key := prefixKey(tokens)
	if _, ok := e.hashes[key]; !ok {
		e.hashes[key] = e.seed<<32 | uint64(len(e.hashes)+1)
		if n := len(tokens) - testBlock; n > 0 {
			e.hash(tokens[:n])
			e.parents[key] = prefixKey(tokens[:n])
		}
	}
	return e.hashes[key]
}

// store puts blocks from..to of a sequence into a tier.
func (e *testEngine) store(tier string, tokens []uint32, from, to int) testEvent {
	ev := stored(tier, nil, nil, tokens[from*testBlock:to*testBlock]...)
	if from > 0 {
		ev.parent = e.hash(tokens[:from*testBlock])
	}
	for i := from; i < to; i++ {
		ev.hashes = append(ev.hashes, e.hold(tier, tokens[:(i+1)*testBlock]))
	}
	return ev
}

// place does so with an event that has no tokens.
func (e *testEngine) place(tier string, tokens []uint32, from, to int) testEvent {
	ev := testEvent{tag: "BlockStored", medium: tier, group: -1}
	for i := from; i < to; i++ {
		ev.hashes = append(ev.hashes, e.hold(tier, tokens[:(i+1)*testBlock]))
	}
	return ev
}

func (e *testEngine) hold(tier string, prefix []uint32) uint64 {
	if e.holds[tier] == nil {
		e.holds[tier] = map[string]int{}
	}
	e.holds[tier][prefixKey(prefix)]++
	return e.hash(prefix)
}

// evict drops one copy of a block, if there is one.
func (e *testEngine) evict(tier string, tokens []uint32, block int) (testEvent, bool) {
	prefix := tokens[:(block+1)*testBlock]
	if e.holds[tier][prefixKey(prefix)] == 0 {
		return testEvent{}, false
	}
	e.holds[tier][prefixKey(prefix)]--
	return removed(tier, e.hash(prefix)), true
}

func (e *testEngine) clear() testEvent {
	e.holds = map[string]map[string]int{}
	return cleared
}

// publish numbers a message and keeps it for replays.
func (e *testEngine) publish(events ...testEvent) message {
	e.ts++
	m := message{e.next, batch(e.ts, events...)}
	e.next++
	e.buffer = append(e.buffer, m)
	if e.steps > 0 && len(e.buffer) > e.steps {
		e.buffer = e.buffer[len(e.buffer)-e.steps:]
	}
	return m
}

// prefix counts, the slow and obvious way, what a prompt finds.
func (e *testEngine) prefix(tokens []uint32) (all int, byTier map[string]int) {
	byTier = map[string]int{}
	for n := testBlock; n <= len(tokens) && e.anywhere(tokens[:n]); n += testBlock {
		all++
	}
	for tier, held := range e.holds {
		for n := testBlock; n <= len(tokens) && held[prefixKey(tokens[:n])] > 0; n += testBlock {
			byTier[tier]++
		}
	}
	return all, byTier
}

func (e *testEngine) anywhere(prefix []uint32) bool {
	for _, held := range e.holds {
		if held[prefixKey(prefix)] > 0 {
			return true
		}
	}
	return false
}

func testConfig(t testing.TB, parameters string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(parameters))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testMetrics(t testing.TB) *metrics {
	t.Helper()
	m, err := newMetrics(nil, func() (int, int, int) { return 0, 0, 0 })
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testIndex(t testing.TB, parameters string) *index {
	t.Helper()
	return newIndex(newHasher(), testConfig(t, parameters), testMetrics(t))
}

// sequenceOf is a prompt of n blocks that shares its first blocks with others of
// the same family.
func sequenceOf(family, shared, n int) []uint32 {
	tokens := make([]uint32, 0, n*testBlock)
	for i := range n * testBlock {
		t := uint32(i + 1)
		if i >= shared*testBlock {
			t += uint32(1000 * (family + 1))
		}
		tokens = append(tokens, t)
	}
	return tokens
}
