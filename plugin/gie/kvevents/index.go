package kvevents

import (
	"bytes"
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
