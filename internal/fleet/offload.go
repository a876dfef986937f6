package fleet

// keep puts a prefix into an engine's CPU tier. Not every such store comes to
// the router's knowledge.
func (f *Fleet) keep(r *replica, q *request, blocks int32) bool {
	if !r.cpu.put(q.prefix, blocks) {
		return false
	}
	r.reported[q.prefix] = f.reports(q.serial)
	return true
}

// reports draws whether a store of a request is reported.
func (f *Fleet) reports(serial uint64) bool {
	return float64(mix(f.seed+forReports, serial)>>11)/(1<<53) < f.profile.CPUReported
}

// storePrefix writes a freshly computed prefix out: into the CPU tier, where it
// stays until enough others have been stored or restored since, and to shared
// storage. Hits in the GPU cache do not renew it.
func (f *Fleet) storePrefix(r *replica, q *request) {
	bytes := float64(q.prefixBlocks-q.cachedBlocks) * f.blockBytes
	f.storage.write(f.now, bytes*f.profile.WriteShare)
	if f.keep(r, q, q.prefixBlocks) {
		f.recordStore(r, bytes)
	}
}

// storePrivate writes out what a request added to its prefix. What no other
// request will ask for passes through the CPU tier without pushing prefixes out
// of the share that keeps them.
func (f *Fleet) storePrivate(r *replica, q *request) {
	blocks := f.blocks(q.promptTokens+q.outputTokens) - q.prefixBlocks
	bytes := float64(blocks) * f.blockBytes
	f.storage.write(f.now, bytes*f.profile.WriteShare)
	if q.keptBlocks > q.prefixBlocks {
		f.keep(r, q, q.keptBlocks)
	}
	f.recordStore(r, bytes)
}

func (f *Fleet) recordStore(r *replica, bytes float64) {
	r.metrics.store.add(bytes, bytes/(f.profile.CopyGBps*1e9), f.ranks)
	r.storing += bytes / f.blockBytes * f.profile.StorePerBlock
}
