package fleet

// storePrefix writes a freshly computed prefix out: into the CPU tier, where it
// stays until enough others have been stored or restored since, and to shared
// storage. Hits in the GPU cache do not renew it.
func (f *Fleet) storePrefix(r *replica, q *request) {
	bytes := float64(q.prefixBlocks-q.cachedBlocks) * f.blockBytes
	f.storage.write(f.now, bytes*f.profile.WriteShare)
	if r.cpu.put(q.prefix, q.prefixBlocks) {
		f.recordStore(r, bytes)
	}
}

// storePrivate writes out what no other request will ask for.
func (f *Fleet) storePrivate(r *replica, q *request) {
	blocks := f.blocks(q.promptTokens+q.outputTokens) - q.prefixBlocks
	f.storage.write(f.now, float64(blocks)*f.blockBytes*f.profile.WriteShare)
	if stored := f.pollute(r, blocks); stored > 0 {
		f.recordStore(r, float64(stored)*f.blockBytes)
	}
}

// pollute puts the stored share of private blocks into the CPU tier and returns
// their number.
func (f *Fleet) pollute(r *replica, blocks int32) int32 {
	stored := int32(f.profile.CPUPrivate*float64(blocks) + 0.5)
	if !r.cpu.take(stored) {
		return 0
	}
	r.cpu.retire(stored)
	return stored
}

func (f *Fleet) recordStore(r *replica, bytes float64) {
	r.metrics.store.add(bytes, bytes/(f.profile.CopyGBps*1e9), f.ranks)
}
