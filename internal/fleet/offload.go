package fleet

import "math"

// storePrefix writes a freshly computed prefix out. Whether it enters the CPU
// tier is a matter of chance: the engine skips stores while the tier's blocks
// are busy.
func (f *Fleet) storePrefix(r *replica, q *request) {
	computed := float64(q.prefixBlocks-q.cachedBlocks) * f.blockBytes
	f.storage.write(f.now, computed*f.profile.WriteShare)
	f.service.reseed(mix(f.seed, forService+16), q.serial)
	tokens := f.prefixes.tokens[q.prefix]
	if !f.service.chance(f.profile.storedChance(tokens)) {
		return
	}
	if !r.cpu.put(q.prefix, q.prefixBlocks) {
		return
	}
	r.metrics.store.add(computed, computed/(f.profile.CopyGBps*1e9), f.ranks)
}

// storePrivate writes out what no other request will ask for.
func (f *Fleet) storePrivate(r *replica, q *request) {
	blocks := f.blocks(q.promptTokens+q.outputTokens) - q.prefixBlocks
	bytes := float64(blocks) * f.blockBytes
	f.storage.write(f.now, bytes*f.profile.WriteShare)
	if r.cpu.take(blocks) {
		r.cpu.retire(blocks)
		r.metrics.store.add(bytes, bytes/(f.profile.CopyGBps*1e9), f.ranks)
	}
}

// storedChance is the chance that a computed prefix enters the CPU tier.
func (p *Profile) storedChance(tokens int32) float64 {
	long := p.StoredLong * math.Pow(2048/math.Max(float64(tokens), 2048), p.StoredDecay)
	return math.Min(1, between(tokens, p.StoredShort, long))
}

// between interpolates from 1024 to 2048 tokens on a logarithmic scale.
func between(tokens int32, short, long float64) float64 {
	x := math.Log2(float64(tokens) / 1024)
	x = math.Max(0, math.Min(1, x))
	return short + (long-short)*x
}
