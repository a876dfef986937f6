package kvevents

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/kvtuner/kvtuner/plugin"
)

// Prompt is the content of a prompt that blocks are told apart by.
type Prompt struct {
	Tokens []uint32
	// Model is the model asked for: an adapter if the engine has one of this
	// name, else the base model.
	Model string
	// Salt isolates the prompt's blocks from those of other salts.
	Salt string
}

// chains keeps the names of a prompt's blocks: endpoints mostly agree on how
// to name them.
type chains struct {
	prompt *Prompt
	known  []chain
}

type chain struct {
	blockSize int
	root      uint64
	names     []uint64
}

func (c *chains) names(h hasher, blockSize int, root uint64) []uint64 {
	for i := range c.known {
		if k := &c.known[i]; k.blockSize == blockSize && k.root == root {
			return k.names
		}
	}
	var extra []byte
	if c.prompt.Salt != "" {
		extra = msgp.AppendString(nil, c.prompt.Salt)
	}
	names := h.chain(c.prompt.Tokens, blockSize, root, extra)
	c.known = append(c.known, chain{blockSize, root, names})
	return names
}

// match returns the prefix of a prompt that is held and the block size; or why
// that cannot be told.
func (x *index) match(c *chains) (m plugin.PrefixMatch, blockSize int, why lookup) {
	blockSize, root, why := x.naming(c.prompt)
	if why != lookupKnown {
		return m, 0, why
	}
	names := c.names(x.hash, blockSize, root)

	x.mu.Lock()
	defer x.mu.Unlock()
	m.ByTier = make(map[string]int, len(x.tiers))
	m.CachedBlocks = x.prefix(names, m.ByTier)
	return m, blockSize, lookupKnown
}

// naming is what a prompt's blocks are named with on this endpoint.
func (x *index) naming(p *Prompt) (blockSize int, root uint64, why lookup) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.blockSize == 0 {
		return 0, 0, lookupNoBlockSize
	}
	if p.Salt != "" && !x.salted {
		return 0, 0, lookupSalt
	}
	if _, ok := x.adapters[p.Model]; ok {
		return x.blockSize, x.hash.root(p.Model), lookupKnown
	}
	return x.blockSize, x.hash.root(""), lookupKnown
}

// prefix returns how many blocks some tier holds, from the first on without a
// gap, and in byTier how many each tier holds alone.
func (x *index) prefix(names []uint64, byTier map[string]int) int {
	x.slots = x.slots[:0]
	alone := uint8(1<<len(x.tiers) - 1)
	for i, name := range names {
		slot, ok := x.blocks.byContent[name]
		if !ok || x.blocks.slots[slot].held == 0 {
			break
		}
		held := x.blocks.slots[slot].held
		x.end(alone&^held, i, byTier)
		alone &= held
		x.slots = append(x.slots, slot)
	}
	x.end(alone, len(x.slots), byTier)
	x.recent()
	return len(x.slots)
}

// end notes that the prefixes of some tiers end after n blocks.
func (x *index) end(tiers uint8, n int, byTier map[string]int) {
	for t := 0; tiers != 0 && n > 0; t++ {
		if tiers&(1<<t) != 0 {
			byTier[x.tiers[t].name] = n
			tiers &^= 1 << t
		}
	}
}
