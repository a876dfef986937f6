package kvevents

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

// plain is an event without views.
type plain struct {
	Kind                  kind
	Hashes                []uint64
	Parent                uint64
	HasParent             bool
	Tokens                []uint32
	BlockSize, Group      int
	Medium, Adapter, Spec string
}

func plainEvents(t *testing.T, message []byte) []plain {
	t.Helper()
	var out []plain
	err := decode(message, func(e *event) error {
		p := plain{Kind: e.kind, Parent: e.parent, HasParent: e.hasParent, BlockSize: e.blockSize, Group: e.group,
			Medium: string(e.medium), Adapter: string(e.adapter), Spec: string(e.spec)}
		n, b, _ := msgp.ReadArrayHeaderBytes(orEmpty(e.hashes))
		for range n {
			var h uint64
			h, b, _ = readHash(b)
			p.Hashes = append(p.Hashes, h)
		}
		n, b, _ = msgp.ReadArrayHeaderBytes(orEmpty(e.tokens))
		for range n {
			var token uint32
			token, b, _ = msgp.ReadUint32Bytes(b)
			p.Tokens = append(p.Tokens, token)
		}
		out = append(out, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDecodeBothEncodings(t *testing.T) {
	full := testEvent{tag: "BlockStored", hashes: []any{uint64(1) << 63, int64(-2), []byte("long enough \x00\x00\x00\x00\x00\x00\x00\x07")},
		parent: uint64(9), tokens: []uint32{1, 70000}, size: 16, medium: "CPU", adapter: "sql",
		extra: []any{nil, []any{"salt"}}, group: 2, spec: "mla_attention"}
	events := []testEvent{full, stored("", nil, ids(4)), removed("GPU", uint64(4)), cleared, {tag: "BlockMoved"}}
	want := []plain{
		{Kind: blockStored, Hashes: []uint64{1 << 63, ^uint64(1), 7}, Parent: 9, HasParent: true, Tokens: []uint32{1, 70000},
			BlockSize: 16, Group: 2, Medium: "CPU", Adapter: "sql", Spec: "mla_attention"},
		{Kind: blockStored, Hashes: []uint64{4}, BlockSize: testBlock, Group: -1},
		{Kind: blockRemoved, Hashes: []uint64{4}, Group: -1, Medium: "GPU"},
		{Kind: allBlocksCleared, Group: -1},
		{Kind: unknownEvent, Group: -1},
	}
	for name, message := range map[string][]byte{"arrays": batch(1, events...), "maps": mapBatch(1, events...)} {
		if diff := cmp.Diff(want, plainEvents(t, message)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestDecodeMessagesOfEngines reads bytes as Python's msgpack wrote them.
func TestDecodeMessagesOfEngines(t *testing.T) {
	for name, test := range map[string]struct {
		hex  string
		want []plain
	}{
		"of two elements, without medium": {
			"92cb41da39de000000009196ab426c6f636b53746f7265649101c0940102030404c0",
			[]plain{{Kind: blockStored, Hashes: []uint64{1}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 4, Group: -1}},
		},
		"removed, by name": {
			"82a27473cb3ff0000000000000a66576656e74739183a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739105a66d656469756da3435055",
			[]plain{{Kind: blockRemoved, Hashes: []uint64{5}, Group: -1, Medium: "CPU"}},
		},
	} {
		message, err := hex.DecodeString(test.hex)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, plainEvents(t, message)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func array(n uint32, of byte, times int) []byte {
	return append(msgp.AppendArrayHeader(nil, n), bytes.Repeat([]byte{of}, times)...)
}

func TestHostileMessagesAreRefused(t *testing.T) {
	wrap := func(event []byte) []byte {
		return append(append([]byte{0x92, 0x01}, 0x91), event...)
	}
	storedWith := func(hashes, tokens []byte) []byte {
		b := append(pack([]byte{0x95}, "BlockStored"), hashes...)
		return wrap(append(append(append(b, 0xc0), tokens...), 1))
	}
	for name, message := range map[string][]byte{
		"nothing":                {},
		"a number":               {1},
		"no events":              {0x91, 1},
		"events of text":         pack([]byte{0x92, 1}, "events"),
		"four billion events":    append([]byte{0x92, 1}, 0xdd, 0xff, 0xff, 0xff, 0xff),
		"four billion entries":   {0xdf, 0xff, 0xff, 0xff, 0xff},
		"an event of text":       wrap(pack(nil, "BlockStored")),
		"an empty event":         wrap([]byte{0x90}),
		"a tag of numbers":       wrap([]byte{0x91, 1}),
		"stored, of nothing":     wrap(pack([]byte{0x91}, "BlockStored")),
		"removed, of null":       wrap(append(pack([]byte{0x92}, "BlockRemoved"), 0xc0)),
		"hashes cut short":       storedWith([]byte{0xdd, 0x7f, 0xff, 0xff, 0xff, 1}, []byte{0x90}),
		"hashes of text":         storedWith(pack(nil, []any{"a"}), []byte{0x91, 1}),
		"tokens of text":         storedWith([]byte{0x91, 1}, pack(nil, []any{"a"})),
		"negative tokens":        storedWith([]byte{0x91, 1}, []byte{0x91, 0xff}),
		"tokens of 64 bits":      storedWith([]byte{0x91, 1}, pack(nil, []any{uint64(1) << 40})),
		"tokens that are a map":  storedWith([]byte{0x91, 1}, []byte{0x80}),
		"arrays, a million deep": wrap(append(pack([]byte{0x92}, "BlockStored"), bytes.Repeat([]byte{0x91}, 1<<20)...)),
		"text of four gigabytes": append([]byte{0x92, 1, 0x91}, 0xdb, 0xff, 0xff, 0xff, 0xff, 'a'),
		"something after it":     append(batch(1), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := decode(message, testIndex(t, "").apply); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestDecodingAllocatesInProportion feeds large messages that announce much.
func TestDecodingAllocatesInProportion(t *testing.T) {
	const size = 4 << 20
	x := testIndex(t, `{"maxBlocks": 1000}`)
	many := pack([]byte{0x92, 1}, nil)[:2]
	many = append(many, array(size, 0xc0, size)...)
	hashes := wrapStored(array(size, 1, size), []byte{0x90})
	tokens := wrapStored([]byte{0x91, 1}, array(size, 1, size))
	for name, message := range map[string][]byte{"nulls as events": many, "hashes": hashes, "tokens": tokens} {
		before := allocated()
		_ = decode(message, x.apply)
		if used := allocated() - before; used > 2*size {
			t.Errorf("%s: %d bytes allocated for a message of %d", name, used, len(message))
		}
	}
	checkBlocks(t, x.blocks)
}

func wrapStored(hashes, tokens []byte) []byte {
	b := append(pack([]byte{0x92, 1, 0x91, 0x95}, "BlockStored"), hashes...)
	return append(append(append(b, 0xc0), tokens...), 1)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func FuzzDecode(f *testing.F) {
	all := stored("CPU", uint64(1), ids(2, 3), 1, 2, 3, 4, 5, 6, 7, 8)
	all.adapter, all.extra, all.group, all.spec = "sql", []any{[]any{"sql", "salt"}, nil}, 0, "full_attention"
	first := stored("GPU", nil, ids(1), 1, 2, 3, 4)
	f.Add(batch(1, first, all, removed("GPU", uint64(1)), cleared))
	f.Add(mapBatch(1, first, all, removed("CPU", []byte("abc"))))
	config, metrics, hash := testConfig(f, `{"maxBlocks": 8}`), testMetrics(f), newHasher()
	f.Fuzz(func(t *testing.T, message []byte) {
		x := newIndex(hash, config, metrics)
		_ = decode(message, x.apply)
		_ = decode(message, x.apply)
		checkBlocks(t, x.blocks)
		x.match(&chains{prompt: &Prompt{Tokens: sequenceOf(0, 6, 6), Model: "sql", Salt: "salt"}})
	})
}
