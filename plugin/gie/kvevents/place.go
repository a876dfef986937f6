package kvevents

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

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

var errTooMany = errors.New("block_hashes: more blocks than can be held")

// each calls use for the known blocks that an event names, the last of each
// chunk first. Chunks that overlap would let a short message cost any number of
// calls, so that it ends at what an honest one can name.
func (x *index) each(e *event, chunk int, use func(slot int32)) error {
	n, hashes, err := msgp.ReadArrayHeaderBytes(e.hashes)
	if err != nil {
		return fmt.Errorf("block_hashes: %w", err)
	}
	left := x.blocks.max
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
			if left--; left < 0 {
				return errTooMany
			}
			use(slot)
			slot, ok = x.blocks.byContent[x.blocks.slots[slot].parent]
		}
	}
	return nil
}
