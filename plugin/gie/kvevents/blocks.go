package kvevents

import "math"

// maxTiers is how many tiers an endpoint may have; llm-d and vLLM know five
// names.
const maxTiers = 8

// none is no slot.
const none = int32(-1)

// block is one block that the engine holds in some tier, or did.
type block struct {
	engine  uint64 // the engine's hash
	content uint64 // ours
	parent  uint64 // content of the block before it
	// copies counts what each tier holds: an engine stores a block twice when
	// two requests compute it at once, and then says so twice.
	copies     [maxTiers]uint16
	prev, next int32
	held       uint8 // bit t: copies[t] > 0
}

// blocks is a bounded set of blocks, found by either hash. When it is full it
// forgets a block that no tier holds, else the least recently used.
type blocks struct {
	max       int
	slots     []block
	free      []int32
	byEngine  map[uint64]int32
	byContent map[uint64]int32
	// gone are blocks that no tier holds. They are kept while there is room: a
	// tier below often reports a block when the GPU has dropped it.
	held, gone recency
}

// recency orders slots, the most recently used first.
type recency struct {
	front, back int32
	len         int
}

func newBlocks(limit int) *blocks {
	return &blocks{
		max:       limit,
		byEngine:  map[uint64]int32{},
		byContent: map[uint64]int32{},
		held:      recency{front: none, back: none},
		gone:      recency{front: none, back: none},
	}
}

// put returns the slot of a block, which it makes if need be. It refuses a hash
// that names another block that is held. evicted says that a held block had to
// be forgotten.
func (b *blocks) put(engine, content, parent uint64) (slot int32, evicted, ok bool) {
	if slot, known := b.byEngine[engine]; known {
		if b.slots[slot].content == content {
			return slot, false, true
		}
		if !b.forget(slot) {
			return none, false, false
		}
	}
	if slot, known := b.byContent[content]; known && !b.forget(slot) {
		return none, false, false
	}
	slot, evicted = b.take()
	b.slots[slot] = block{engine: engine, content: content, parent: parent}
	b.byEngine[engine], b.byContent[content] = slot, slot
	b.push(&b.gone, slot)
	return slot, evicted, true
}

// forget drops a block unless a tier holds it.
func (b *blocks) forget(slot int32) bool {
	if b.slots[slot].held != 0 {
		return false
	}
	b.drop(slot)
	b.free = append(b.free, slot)
	return true
}

func (b *blocks) drop(slot int32) {
	dropped := &b.slots[slot]
	b.unlink(b.listOf(slot), slot)
	delete(b.byEngine, dropped.engine)
	delete(b.byContent, dropped.content)
}

// take returns an unused slot, making one by dropping a block if it must.
func (b *blocks) take() (slot int32, evicted bool) {
	if n := len(b.free); n > 0 {
		slot, b.free = b.free[n-1], b.free[:n-1]
		return slot, false
	}
	if len(b.slots) < b.max {
		b.slots = append(b.slots, block{})
		return int32(len(b.slots) - 1), false
	}
	slot, evicted = b.gone.back, false
	if slot == none {
		slot, evicted = b.held.back, true
	}
	b.drop(slot)
	return slot, evicted
}

// hold notes one more copy in a tier.
func (b *blocks) hold(slot int32, tier int) {
	held := &b.slots[slot]
	if held.held == 0 {
		b.unlink(&b.gone, slot)
		b.push(&b.held, slot)
	}
	held.held |= 1 << tier
	if held.copies[tier] < math.MaxUint16 {
		held.copies[tier]++
	}
}

// release notes one copy less in a tier. It returns false if there was none.
func (b *blocks) release(slot int32, tier int) bool {
	held := &b.slots[slot]
	if held.copies[tier] == 0 {
		return false
	}
	if held.copies[tier]--; held.copies[tier] > 0 {
		return true
	}
	if held.held &^= 1 << tier; held.held == 0 {
		b.unlink(&b.held, slot)
		b.push(&b.gone, slot)
	}
	return true
}

// use makes a block the most recently used of its kind.
func (b *blocks) use(slot int32) {
	l := b.listOf(slot)
	b.unlink(l, slot)
	b.push(l, slot)
}

func (b *blocks) listOf(slot int32) *recency {
	if b.slots[slot].held != 0 {
		return &b.held
	}
	return &b.gone
}

func (b *blocks) push(l *recency, slot int32) {
	pushed := &b.slots[slot]
	pushed.prev, pushed.next = none, l.front
	if l.front == none {
		l.back = slot
	} else {
		b.slots[l.front].prev = slot
	}
	l.front = slot
	l.len++
}

func (b *blocks) unlink(l *recency, slot int32) {
	prev, next := b.slots[slot].prev, b.slots[slot].next
	if prev == none {
		l.front = next
	} else {
		b.slots[prev].next = next
	}
	if next == none {
		l.back = prev
	} else {
		b.slots[next].prev = prev
	}
	l.len--
}
