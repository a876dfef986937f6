package fleet

// blockCache is one tier of KV cache with LRU eviction. A prefix is held as a
// contiguous range of blocks from its start, evicted from its end, so the cost
// of an operation does not depend on the number of blocks.
//
// Blocks are free, idle (cached and evictable), or pinned. Pinned blocks belong
// to a prefix somebody uses or to a request (private).
type blockCache struct {
	capacity int32
	free     int32
	idle     int32
	nodes    []cacheNode // 0 is the sentinel: next is least, prev most recent
	spare    int32       // first unused node, linked by next
	entry    []int32     // prefix -> node
}

type cacheNode struct {
	prev, next int32
	blocks     int32
	pins       int32
	prefix     int32 // -1: private
}

func newBlockCache(capacity int32) *blockCache {
	return &blockCache{capacity: capacity, free: capacity, nodes: make([]cacheNode, 1, 1024)}
}

// grow makes room for prefixes 0..n-1.
func (c *blockCache) grow(n int) {
	for p := len(c.entry); p < n; p++ {
		c.entry = append(c.entry, c.newNode(int32(p)))
	}
}

func (c *blockCache) newNode(prefix int32) int32 {
	i := c.spare
	if i == 0 {
		i = int32(len(c.nodes))
		c.nodes = append(c.nodes, cacheNode{})
	} else {
		c.spare = c.nodes[i].next
	}
	c.nodes[i] = cacheNode{prefix: prefix}
	return i
}

// held is the number of leading blocks of a prefix in the cache.
func (c *blockCache) held(prefix int32) int32 { return c.nodes[c.entry[prefix]].blocks }

// pinned is the number of blocks that cannot be evicted.
func (c *blockCache) pinned() int32 { return c.capacity - c.free - c.idle }

// pin protects what is held of a prefix, now and later, until unpin.
func (c *blockCache) pin(prefix int32) {
	i := c.entry[prefix]
	n := &c.nodes[i]
	if n.pins == 0 && n.blocks > 0 {
		c.unlink(i)
		c.idle -= n.blocks
	}
	n.pins++
}

// unpin releases one pin; the last one makes the prefix the most recent.
func (c *blockCache) unpin(prefix int32) {
	i := c.entry[prefix]
	n := &c.nodes[i]
	n.pins--
	if n.pins == 0 && n.blocks > 0 {
		c.link(i)
		c.idle += n.blocks
	}
}

// take allocates n private pinned blocks, evicting as needed; false, and no
// change, if too few can be had.
func (c *blockCache) take(n int32) bool {
	if c.free+c.idle < n {
		return false
	}
	for c.free < n {
		c.evict(n - c.free)
	}
	c.free -= n
	return true
}

// evict drops up to n blocks from the least recent entry's end.
func (c *blockCache) evict(n int32) {
	i := c.nodes[0].next
	v := &c.nodes[i]
	n = min(n, v.blocks)
	v.blocks -= n
	c.idle -= n
	c.free += n
	if v.blocks > 0 {
		return
	}
	c.unlink(i)
	if v.prefix < 0 {
		v.next = c.spare
		c.spare = i
	}
}

// publish turns pinned private blocks into the range [held, upTo) of a pinned
// prefix and returns how many it used.
func (c *blockCache) publish(prefix, upTo int32) int32 {
	n := &c.nodes[c.entry[prefix]]
	used := max(0, upTo-n.blocks)
	n.blocks += used
	return used
}

// retire makes n pinned private blocks idle: they stay until evicted.
func (c *blockCache) retire(n int32) {
	if n <= 0 {
		return
	}
	i := c.newNode(-1)
	c.nodes[i].blocks = n
	c.link(i)
	c.idle += n
}

// put stores the first n blocks of a prefix, unpinned, as the most recent.
// False if they do not fit.
func (c *blockCache) put(prefix, n int32) bool {
	c.pin(prefix)
	defer c.unpin(prefix)
	missing := max(0, n-c.held(prefix))
	if !c.take(missing) {
		return false
	}
	c.publish(prefix, n)
	return true
}

// touch makes a prefix the most recent.
func (c *blockCache) touch(prefix int32) {
	c.pin(prefix)
	c.unpin(prefix)
}

// forget leaves the blocks of an unpinned prefix to be evicted, in their turn,
// and starts the prefix anew.
func (c *blockCache) forget(prefix int32) {
	i := c.entry[prefix]
	if c.nodes[i].blocks == 0 {
		return
	}
	c.nodes[i].prefix = -1
	c.entry[prefix] = c.newNode(prefix)
}

// resize changes the capacity, evicting as needed; pinned blocks stay, and
// free is negative until enough of them are released.
func (c *blockCache) resize(capacity int32) {
	c.free += capacity - c.capacity
	c.capacity = capacity
	for c.free < 0 && c.idle > 0 {
		c.evict(-c.free)
	}
}

func (c *blockCache) link(i int32) {
	last := c.nodes[0].prev
	c.nodes[i].prev, c.nodes[i].next = last, 0
	c.nodes[last].next = i
	c.nodes[0].prev = i
}

func (c *blockCache) unlink(i int32) {
	prev, next := c.nodes[i].prev, c.nodes[i].next
	c.nodes[prev].next = next
	c.nodes[next].prev = prev
}
