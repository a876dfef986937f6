package kvevents

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/tinylib/msgp/msgp"
)

// Bounds on names that an engine may invent.
const (
	maxTierName = 64
	maxAdapters = 1024
	maxAdapter  = 256
)

const tierGPU = "gpu"

// index is what one endpoint holds, by tier.
type index struct {
	config  *Config
	hash    hasher
	metrics *metrics

	mu     sync.Mutex
	blocks *blocks
	// blockSize in tokens; 0 until the first stored block tells.
	blockSize int
	group     int // of the attention over the whole prefix; -1 until told
	tiers     []tier
	// adapters whose blocks have been seen.
	adapters map[string]struct{}
	// salted says that the engine names extra keys, such as a cache salt.
	salted bool

	preimage, extra []byte
	slots           []int32
}

type tier struct {
	name string
	// chunk is how many blocks a removal without tokens stands for.
	chunk int
}

func newIndex(h hasher, c *Config, m *metrics) *index {
	x := &index{config: c, hash: h, metrics: m}
	x.clear()
	return x
}

// reset forgets all blocks.
func (x *index) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clear()
}

func (x *index) clear() {
	x.blocks, x.blockSize, x.group = newBlocks(x.config.MaxBlocks), x.config.BlockSize, -1
	x.tiers, x.adapters, x.salted = nil, map[string]struct{}{}, false
}

func (x *index) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.blocks.held.len
}

// apply takes one event in. An error says that the event could not be read:
// what the index holds may be wrong. An event that says nothing of use is
// counted and skipped.
func (x *index) apply(e *event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch e.kind {
	case blockStored:
		return x.store(e)
	case blockRemoved:
		return x.remove(e)
	case allBlocksCleared:
		x.metrics.cleared.Inc()
		x.clear()
	default:
		x.metrics.skip(skipUnknownEvent)
	}
	return nil
}

func (x *index) store(e *event) error {
	if !x.follows(e) {
		x.metrics.skip(skipOtherGroup)
		return nil
	}
	tier := x.tier(e.medium)
	if tier < 0 {
		x.metrics.skip(skipTier)
		return nil
	}
	tokens, view, err := msgp.ReadArrayHeaderBytes(orEmpty(e.tokens))
	if err != nil {
		return fmt.Errorf("token_ids: %w", err)
	}
	if tokens == 0 {
		return x.place(e, tier)
	}
	return x.storeTokens(e, tier, tokens, view)
}

// storeTokens takes blocks that the event describes: hashes, parent and tokens.
func (x *index) storeTokens(e *event, tier int, tokens uint32, view []byte) error {
	n, hashes, err := msgp.ReadArrayHeaderBytes(e.hashes)
	if err != nil {
		return fmt.Errorf("block_hashes: %w", err)
	}
	if x.blockSize == 0 {
		x.blockSize = e.blockSize
	}
	if e.blockSize != x.blockSize || e.blockSize == 0 || uint64(tokens) != uint64(n)*uint64(e.blockSize) {
		x.metrics.skip(skipBlockSize)
		return nil
	}
	parent, ok := x.parent(e)
	if !ok {
		x.metrics.skip(skipUnknownParent)
		return nil
	}
	keys, err := extraKeys(e.extra, n)
	if err != nil {
		return err
	}
	x.tiers[tier].chunk = 1
	x.slots = x.slots[:0]
	for range n {
		var engine uint64
		if engine, hashes, err = readHash(hashes); err != nil {
			return fmt.Errorf("block_hashes: %w", err)
		}
		x.preimage = begin(x.preimage, parent)
		if view, err = x.readTokens(view); err != nil {
			return err
		}
		if keys, err = x.readExtra(keys, e.adapter); err != nil {
			return err
		}
		content := x.hash.sum(x.preimage, x.extra)
		x.add(engine, content, parent, tier)
		parent = content
	}
	x.recent()
	return nil
}

func (x *index) parent(e *event) (uint64, bool) {
	if e.hasParent {
		slot, ok := x.blocks.byEngine[e.parent]
		if !ok {
			return 0, false
		}
		return x.blocks.slots[slot].content, true
	}
	if len(e.adapter) > 0 && len(e.adapter) <= maxAdapter && len(x.adapters) < maxAdapters {
		x.adapters[string(e.adapter)] = struct{}{}
	}
	return x.hash.root(string(e.adapter)), true
}

func (x *index) add(engine, content, parent uint64, tier int) {
	slot, evicted, ok := x.blocks.put(engine, content, parent)
	if !ok {
		x.metrics.skip(skipConflict)
		return
	}
	if evicted {
		x.metrics.evicted.Inc()
	}
	x.blocks.hold(slot, tier)
	x.metrics.stored.Inc()
	x.slots = append(x.slots, slot)
}

// recent makes the blocks in x.slots the most recently used, the first of them
// most: a prefix is worth nothing without its beginning.
func (x *index) recent() {
	for i := len(x.slots) - 1; i >= 0; i-- {
		x.blocks.use(x.slots[i])
	}
}

// readTokens appends the tokens of one block to the preimage.
func (x *index) readTokens(b []byte) ([]byte, error) {
	for range x.blockSize {
		t, rest, err := msgp.ReadUint32Bytes(b)
		if err != nil {
			return nil, fmt.Errorf("token_ids: %w", err)
		}
		x.preimage, b = binary.LittleEndian.AppendUint32(x.preimage, t), rest
	}
	return b, nil
}

// extraKeys checks that there is an entry for each of n blocks. nil is as good
// as no keys at all.
func extraKeys(b []byte, n uint32) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	entries, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, fmt.Errorf("extra_keys: %w", err)
	}
	if entries != n {
		return nil, fmt.Errorf("extra_keys: %d entries for %d blocks", entries, n)
	}
	return rest, nil
}

// readExtra puts the extra keys of one block into x.extra, as encoded. The name
// of the adapter is left out: the root has it.
func (x *index) readExtra(b, adapter []byte) ([]byte, error) {
	x.extra = x.extra[:0]
	if len(b) == 0 {
		return b, nil
	}
	if msgp.NextType(b) == msgp.NilType {
		return msgp.ReadNilBytes(b)
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, fmt.Errorf("extra_keys: %w", err)
	}
	for range n {
		rest, err := msgp.Skip(b)
		if err != nil {
			return nil, fmt.Errorf("extra_keys: %w", err)
		}
		raw := b[:len(b)-len(rest)]
		if name, _, err := msgp.ReadStringZC(raw); err != nil || len(adapter) == 0 || !bytes.Equal(name, adapter) {
			x.extra = append(x.extra, raw...)
			x.salted = true
		}
		b = rest
	}
	return b, nil
}

// place takes blocks that the event only names: a tier below the GPU, whose
// manager knows no tokens. Such a block, or a chunk that ends with it, has to be
// known from the GPU.
func (x *index) place(e *event, tier int) error {
	chunk := x.config.OffloadChunkBlocks
	if chunk == 0 {
		chunk = 1
		if x.blockSize > 0 && e.blockSize%x.blockSize == 0 {
			chunk = max(1, e.blockSize/x.blockSize)
		}
	}
	x.tiers[tier].chunk = chunk
	x.slots = x.slots[:0]
	err := x.each(e, chunk, func(slot int32) {
		x.blocks.hold(slot, tier)
		x.metrics.stored.Inc()
		x.slots = append(x.slots, slot)
	})
	for _, slot := range x.slots { // each ends with the beginning
		x.blocks.use(slot)
	}
	return err
}

func (x *index) remove(e *event) error {
	if e.group >= 0 && e.group != max(x.group, 0) {
		x.metrics.skip(skipOtherGroup)
		return nil
	}
	tier := x.tier(e.medium)
	if tier < 0 {
		x.metrics.skip(skipTier)
		return nil
	}
	return x.each(e, max(x.tiers[tier].chunk, 1), func(slot int32) {
		if !x.blocks.release(slot, tier) {
			x.metrics.skip(skipUnknownBlock)
			return
		}
		x.metrics.removed.Inc()
	})
}

// each calls use for the known blocks that an event names, the last of each
// chunk first.
func (x *index) each(e *event, chunk int, use func(slot int32)) error {
	n, hashes, err := msgp.ReadArrayHeaderBytes(e.hashes)
	if err != nil {
		return fmt.Errorf("block_hashes: %w", err)
	}
	for range n {
		var engine uint64
		if engine, hashes, err = readHash(hashes); err != nil {
			return fmt.Errorf("block_hashes: %w", err)
		}
		slot, ok := x.blocks.byEngine[engine]
		if !ok {
			x.metrics.skip(skipUnknownBlock)
		}
		for i := 0; ok && i < chunk; i++ {
			use(slot)
			slot, ok = x.blocks.byContent[x.blocks.slots[slot].parent]
		}
	}
	return nil
}

// follows says whether a stored event speaks of the one group of layers that is
// followed: the first whose attention spans the whole prefix.
func (x *index) follows(e *event) bool {
	switch {
	case e.group < 0:
		return true
	case x.group >= 0:
		return e.group == x.group
	case e.spec == nil:
		return e.group == 0
	case !wholePrefix(e.spec):
		return false
	}
	x.group = e.group
	return true
}

// wholePrefix tells kinds of attention that need every block of a prefix from
// those that need a window of it, or a state.
func wholePrefix(spec []byte) bool {
	return bytes.HasSuffix(spec, []byte("full_attention")) || string(spec) == "mla_attention"
}

// tier returns the number of a tier, or -1 if it is one too many. An engine that
// names none means the GPU.
func (x *index) tier(medium []byte) int {
	for i := range x.tiers {
		if len(medium) == len(x.tiers[i].name) && strings.EqualFold(x.tiers[i].name, string(medium)) {
			return i
		}
	}
	name := strings.ToLower(string(medium))
	if name == "" {
		name = tierGPU
		for i := range x.tiers {
			if x.tiers[i].name == name {
				return i
			}
		}
	}
	if len(x.tiers) == maxTiers || len(name) > maxTierName {
		return -1
	}
	x.tiers = append(x.tiers, tier{name: name, chunk: 1})
	return len(x.tiers) - 1
}

var emptyArray = []byte{0x90}

func orEmpty(b []byte) []byte {
	if b == nil {
		return emptyArray
	}
	return b
}
