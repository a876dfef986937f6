package kvevents

import (
	"encoding/binary"
	"hash/maphash"
)

// hasher names blocks by their content: the tokens of the block and of all
// before it, and whatever else the engine tells prefixes apart by. Its seed is
// random, so that no prompt can be made to collide with another.
type hasher struct{ seed maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed()} }

// root is the parent of first blocks: of the base model, or of an adapter.
func (h hasher) root(adapter string) uint64 {
	return maphash.String(h.seed, adapter)
}

// begin starts the preimage of a block in buf's memory.
func begin(buf []byte, parent uint64) []byte {
	return binary.LittleEndian.AppendUint64(buf[:0], parent)
}

// sum ends it, with the extra keys of the block.
func (h hasher) sum(preimage, extra []byte) uint64 {
	return maphash.Bytes(h.seed, append(preimage, extra...))
}

// chain names the whole blocks of a prompt. The extra keys are those of its
// first block.
func (h hasher) chain(tokens []uint32, blockSize int, parent uint64, extra []byte) []uint64 {
	if len(tokens) < blockSize {
		return nil
	}
	names := make([]uint64, 0, len(tokens)/blockSize)
	buf := make([]byte, 0, 8+4*blockSize+len(extra))
	for len(tokens) >= blockSize {
		buf = begin(buf, parent)
		for _, t := range tokens[:blockSize] {
			buf = binary.LittleEndian.AppendUint32(buf, t)
		}
		parent = h.sum(buf, extra)
		names = append(names, parent)
		tokens, extra = tokens[blockSize:], nil
	}
	return names
}
