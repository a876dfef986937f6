package fleet

import (
	"testing"

	"pgregory.net/rapid"
)

// used adds up what every node of a cache holds.
func (c *blockCache) used() (idle, pinned int32) {
	for i := c.nodes[0].next; i != 0; i = c.nodes[i].next {
		idle += c.nodes[i].blocks
	}
	for _, i := range c.entry {
		if c.nodes[i].pins > 0 {
			pinned += c.nodes[i].blocks
		}
	}
	return idle, pinned
}

func TestCacheKeepsBooks(t *testing.T) {
	const prefixes, length = 6, 8
	rapid.Check(t, func(t *rapid.T) {
		c := newBlockCache(40)
		c.grow(prefixes)
		var users []int32            // pinned prefixes, one entry a pin
		guarded := map[int32]int32{} // blocks held while pinned
		private := int32(0)
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				p := rapid.Int32Range(0, prefixes-1).Draw(t, "prefix")
				c.pin(p)
				need := length - c.held(p)
				if !c.take(need) {
					c.unpin(p)
					return
				}
				private += need - c.publish(p, length)
				users = append(users, p)
				guarded[p] = length
			},
			"finish": func(t *rapid.T) {
				if len(users) == 0 {
					t.Skip("nothing runs")
				}
				i := rapid.IntRange(0, len(users)-1).Draw(t, "user")
				p := users[i]
				users = append(users[:i], users[i+1:]...)
				c.retire(private)
				private = 0
				c.unpin(p)
				delete(guarded, p)
				for _, q := range users {
					guarded[q] = length
				}
			},
			"private": func(t *rapid.T) {
				if n := rapid.Int32Range(1, 5).Draw(t, "blocks"); c.take(n) {
					private += n
				}
			},
			"put":   func(t *rapid.T) { c.put(rapid.Int32Range(0, prefixes-1).Draw(t, "prefix"), length) },
			"touch": func(t *rapid.T) { c.touch(rapid.Int32Range(0, prefixes-1).Draw(t, "prefix")) },
			"": func(t *rapid.T) {
				idle, pinned := c.used()
				if idle != c.idle || pinned+private != c.pinned() || c.free < 0 {
					t.Fatalf("idle %d counted %d, pinned %d counted %d, free %d", c.idle, idle, c.pinned(), pinned+private, c.free)
				}
				for p, n := range guarded {
					if c.held(p) < n {
						t.Fatalf("pinned prefix %d lost blocks: %d of %d", p, c.held(p), n)
					}
				}
			},
		})
	})
}

func TestCacheEvictsLeastRecentFromItsEnd(t *testing.T) {
	c := newBlockCache(10)
	c.grow(3)
	c.put(0, 4)
	c.put(1, 4)
	c.touch(0)
	c.put(2, 5)
	if c.held(0) != 4 || c.held(1) != 1 || c.held(2) != 5 {
		t.Errorf("held %d, %d, %d; want 4, 1, 5", c.held(0), c.held(1), c.held(2))
	}
}

func TestCacheRefusesWithoutChange(t *testing.T) {
	c := newBlockCache(10)
	c.grow(2)
	c.put(0, 4)
	c.pin(0)
	if c.take(7) {
		t.Fatal("took 7 of 6 blocks")
	}
	if c.held(0) != 4 || c.pinned() != 4 {
		t.Errorf("held %d, pinned %d after a refusal; want 4, 4", c.held(0), c.pinned())
	}
}

func TestCacheShrinksAroundPinnedBlocks(t *testing.T) {
	c := newBlockCache(10)
	c.grow(2)
	c.put(0, 4)
	c.put(1, 4)
	c.pin(1)
	c.resize(3)
	if c.held(0) != 0 || c.held(1) != 4 || c.take(1) {
		t.Errorf("held %d and %d after shrinking; want 0 and 4, and nothing to take", c.held(0), c.held(1))
	}
	c.unpin(1)
	if !c.take(1) || c.held(1) != 2 {
		t.Errorf("held %d after release; want 2 of 3 blocks, one taken", c.held(1))
	}
}
