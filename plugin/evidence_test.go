package plugin

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestReusableTokens(t *testing.T) {
	type tiers = map[string]int
	one := func(cached int, by tiers) []PrefixMatch { return []PrefixMatch{{cached, by}} }
	for _, tt := range []struct {
		name      string
		prompts   []PrefixMatch
		permitted []string
		blockSize int
		want      int
		reason    Reason
	}{
		{"no prompts", nil, nil, 16, 0, ReasonNoEvidence},
		{"no tier map", one(4, nil), nil, 16, 0, ReasonNoEvidence},
		{"one prompt without tier map", []PrefixMatch{{4, tiers{"cpu": 4}}, {4, nil}}, nil, 16, 0, ReasonNoEvidence},
		{"empty tier map", one(0, tiers{}), nil, 16, 0, ReasonReusable},
		{"empty tier map with a total", one(4, tiers{}), nil, 16, 0, ReasonReusable},
		{"block size of 0", one(4, tiers{"cpu": 4}), nil, 0, 0, ReasonInvalidEvidence},
		{"negative block size", one(4, tiers{"cpu": 4}), nil, -16, 0, ReasonInvalidEvidence},
		{"negative count", one(4, tiers{"cpu": -4}), nil, 16, 0, ReasonInvalidEvidence},
		{"negative count of the GPU", one(4, tiers{"gpu": -1, "cpu": 4}), nil, 16, 0, ReasonInvalidEvidence},
		{"negative count of a forbidden tier", one(4, tiers{"nvme": -1, "cpu": 4}), []string{"cpu"}, 16, 0, ReasonInvalidEvidence},
		{"negative total", one(-1, tiers{"cpu": 4}), nil, 16, 0, ReasonInvalidEvidence},
		{"beyond the GPU", one(20, tiers{"gpu": 4, "cpu": 20}), nil, 64, 1024, ReasonReusable},
		{"largest tier", one(24, tiers{"gpu": 4, "cpu": 12, "storage": 24}), nil, 64, 1280, ReasonReusable},
		{"shorter than the GPU", one(20, tiers{"gpu": 20, "cpu": 10}), nil, 64, 0, ReasonReusable},
		{"tier without block 0", one(4, tiers{"gpu": 2}), nil, 16, 32, ReasonReusable},
		{"unknown total", one(0, tiers{"gpu": 2, "cpu": 5}), nil, 16, 48, ReasonReusable},
		{"speculative only", one(20, tiers{"speculative": 20}), nil, 16, 0, ReasonReusable},
		{"speculative hides who holds the total", one(9, tiers{"gpu": 2, "speculative": 6}), nil, 16, 0, ReasonReusable},
		{"speculative within the GPU", one(4, tiers{"gpu": 2, "speculative": 2}), nil, 16, 32, ReasonReusable},
		{"speculative within a tier", one(9, tiers{"gpu": 2, "cpu": 6, "speculative": 6}), nil, 16, 112, ReasonReusable},
		{"permitted tier", one(24, tiers{"gpu": 4, "cpu": 12, "storage": 24}), []string{"cpu"}, 64, 512, ReasonReusable},
		{"total proves nothing of a permitted tier", one(24, tiers{"gpu": 4}), []string{"cpu"}, 64, 0, ReasonReusable},
		{"permitted tier in another case", one(12, tiers{"cpu": 12}), []string{"CPU"}, 64, 768, ReasonReusable},
		{"nothing permitted", one(24, tiers{"cpu": 24}), []string{}, 64, 0, ReasonReusable},
		{"GPU is no tier to load from", one(24, tiers{"gpu": 24}), []string{"gpu", "speculative"}, 64, 0, ReasonReusable},
		{"maximum before sum", []PrefixMatch{{10, tiers{"gpu": 10, "cpu": 2}}, {10, tiers{"cpu": 10}}}, nil, 1, 10, ReasonReusable},
		{"different tiers of a batch", []PrefixMatch{{8, tiers{"cpu": 8}}, {6, tiers{"storage": 6}}}, nil, 1, 14, ReasonReusable},
		{"product overflows", one(math.MaxInt, tiers{"cpu": math.MaxInt}), nil, 1 << 20, maxTokens, ReasonReusable},
		{"sum overflows", []PrefixMatch{{0, tiers{"cpu": math.MaxInt}}, {0, tiers{"cpu": math.MaxInt}}, {0, tiers{"cpu": math.MaxInt}}}, nil, 1, maxTokens, ReasonReusable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Evidence{Prompts: tt.prompts, BlockSize: tt.blockSize, LoadTiers: tt.permitted}
			if got, _, reason := e.tokens(); got != tt.want || reason != tt.reason {
				t.Errorf("%d, %v, want %d, %v", got, reason, tt.want, tt.reason)
			}
		})
	}
}

// cache is which tier holds which blocks of a prompt.
type cache map[string][]bool

func drawCache(t *rapid.T, blocks int) cache {
	c := cache{}
	for _, tier := range []string{"gpu", "cpu", "nvme"} {
		c[tier] = rapid.SliceOfN(rapid.Bool(), blocks, blocks).Draw(t, tier)
	}
	// The router expects a whole prompt to be cached, up to where it looked.
	expected := rapid.IntRange(0, blocks).Draw(t, "speculative")
	c[tierSpeculative] = make([]bool, blocks)
	for i := range expected {
		c[tierSpeculative][i] = true
	}
	return c
}

// prefix is how many blocks from the first are held by any of the tiers.
func (c cache) prefix(tiers ...string) int {
	n := 0
	for ; c.holds(n, tiers...); n++ {
	}
	return n
}

func (c cache) holds(block int, tiers ...string) bool {
	for _, tier := range tiers {
		if block < len(c[tier]) && c[tier][block] {
			return true
		}
	}
	return false
}

// match is what a router says of the cache: tiers that lack block 0 are absent.
func (c cache) match() PrefixMatch {
	m := PrefixMatch{CachedBlocks: c.prefix("gpu", "cpu", "nvme", tierSpeculative), ByTier: map[string]int{}}
	for tier := range c {
		if n := c.prefix(tier); n > 0 {
			m.ByTier[tier] = n
		}
	}
	return m
}

// Every block counted is there: beyond the GPU's prefix, each is held by a tier
// that may be loaded from, or by the GPU itself. And what one such tier holds
// from its block 0 is always counted.
func TestReusableTokensAreProvable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCache(t, rapid.IntRange(0, 12).Draw(t, "blocks"))
		permitted := rapid.SampledFrom([][]string{nil, {}, {"cpu"}, {"nvme"}, {"nvme", "CPU"}}).Draw(t, "permitted")
		may := permitted
		if permitted == nil {
			may = []string{"cpu", "nvme"}
		}
		e := Evidence{Prompts: []PrefixMatch{c.match()}, BlockSize: 1, LoadTiers: permitted}
		got, _, reason := e.tokens()
		if reason != ReasonReusable {
			t.Fatal(reason)
		}
		gpu := c.prefix("gpu")
		for i := gpu; i < gpu+got; i++ {
			if !c.holds(i, "gpu", "cpu", "nvme") || permitted != nil && !c.holds(i, lower(may)...) {
				t.Fatalf("block %d of %d+%d counted, but no permitted tier of %v holds it: %v", i, gpu, got, permitted, c)
			}
		}
		for _, tier := range lower(may) {
			if sure := c.prefix(tier) - gpu; got < sure {
				t.Fatalf("%d counted, but %s alone holds %d more than the GPU: %v", got, tier, sure, c)
			}
		}
	})
}

func lower(names []string) []string {
	return LoadTiers(map[string]any{fieldParams: map[string]any{fieldLoadTiers: names}})
}
