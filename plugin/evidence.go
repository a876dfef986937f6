package plugin

import (
	"math"
	"math/bits"
	"strings"
)

// Tiers that no restore reads from: the GPU itself, and what the router merely
// expects to be cached soon.
const (
	tierGPU         = "gpu"
	tierSpeculative = "speculative"
)

// maxTokens is where token counts saturate: below store.Never, which no request
// may reach.
const maxTokens = math.MaxInt - 1

// tokens returns how many tokens a restore would bring, how many the GPU holds,
// and ReasonReusable; or, when that cannot be told, 0 and the reason why.
func (e *Evidence) tokens() (reusable, held int, known Reason) {
	if len(e.Prompts) == 0 {
		return 0, 0, ReasonNoEvidence
	}
	if e.BlockSize <= 0 {
		return 0, 0, ReasonInvalidEvidence
	}
	var outside, inside uint64
	for i := range e.Prompts {
		blocks, gpu, reason := e.Prompts[i].reusable(e.LoadTiers)
		if reason != ReasonReusable {
			return 0, 0, reason
		}
		outside, inside = min(outside+uint64(blocks), maxTokens), min(inside+uint64(gpu), maxTokens)
	}
	return saturate(outside, e.BlockSize), saturate(inside, e.BlockSize), ReasonReusable
}

// saturate is a number of blocks in tokens.
func saturate(blocks uint64, size int) int {
	high, low := bits.Mul64(blocks, uint64(size))
	if high != 0 || low > maxTokens {
		return maxTokens
	}
	return int(low)
}

// reusable returns the blocks of one prompt that a restore would bring, and those
// that the GPU holds.
//
// A tier's own count starts at block 0 of that tier, so blocks of a tier that
// lacks block 0 show only in CachedBlocks. But CachedBlocks does not say which
// tier holds them, so it counts only where every holder but the GPU could be
// read: the client permits all tiers, and the speculative prefix ends within
// what the GPU or a permitted tier holds anyway.
func (m *PrefixMatch) reusable(permitted []string) (blocks, gpu int, known Reason) {
	if m.ByTier == nil {
		return 0, 0, ReasonNoEvidence
	}
	if m.CachedBlocks < 0 {
		return 0, 0, ReasonInvalidEvidence
	}
	var speculative, external int
	for tier, blocks := range m.ByTier {
		switch {
		case blocks < 0:
			return 0, 0, ReasonInvalidEvidence
		case tier == tierGPU:
			gpu = blocks
		case tier == tierSpeculative:
			speculative = blocks
		case permits(permitted, tier):
			external = max(external, blocks)
		}
	}
	if permitted == nil && len(m.ByTier) > 0 && speculative <= max(gpu, external) {
		external = max(external, m.CachedBlocks)
	}
	return max(external-gpu, 0), gpu, ReasonReusable
}

func permits(permitted []string, tier string) bool {
	if permitted == nil {
		return true
	}
	for _, p := range permitted {
		if strings.EqualFold(p, tier) {
			return true
		}
	}
	return false
}
