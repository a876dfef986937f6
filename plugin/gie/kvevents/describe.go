package kvevents

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

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
		var engine, content uint64
		if engine, hashes, err = readHash(hashes); err != nil {
			return fmt.Errorf("block_hashes: %w", err)
		}
		if content, view, keys, err = x.name(parent, view, keys, e.adapter); err != nil {
			return err
		}
		x.add(engine, content, parent, tier)
		parent = content
	}
	x.recent()
	return nil
}

// name reads what the next block is named by.
func (x *index) name(parent uint64, tokens, keys, adapter []byte) (content uint64, _, _ []byte, err error) {
	x.preimage = begin(x.preimage, parent)
	if tokens, err = x.readTokens(tokens); err != nil {
		return 0, nil, nil, err
	}
	if keys, err = x.readExtra(keys, adapter); err != nil {
		return 0, nil, nil, err
	}
	return x.hash.sum(x.preimage, x.extra), tokens, keys, nil
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
