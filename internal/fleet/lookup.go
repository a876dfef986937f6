package fleet

import "math"

// startLookup asks what of a prompt lies outside the GPU: every block the GPU
// does not hold is looked up, on the node's shared storage, too, also when there
// is nothing to find. What only shared storage has must then be read.
func (f *Fleet) startLookup(id int32) {
	q := &f.requests.all[id]
	r := &f.replicas[q.replica]
	held := min(r.gpu.held(q.prefix), q.prefixBlocks)
	near := max(held, min(r.cpu.held(q.prefix), q.prefixBlocks))
	q.lookupBlocks = f.blocks(q.promptTokens) - held
	f.service.reseed(mix(f.seed, forService), q.serial)
	z := f.storage.saturation(f.now)
	delay := f.lookupDelay(float64(q.lookupBlocks), z)
	f.stats.lookups = append(f.stats.lookups, delay)
	f.total.lookups = append(f.total.lookups, delay)
	done := after(f.now, delay)
	if near < q.prefixBlocks && f.service.chance(f.profile.SharedChance) {
		q.sharedBlocks = int32(math.Ceil(f.profile.SharedShare * float64(q.prefixBlocks)))
		if missing := q.sharedBlocks - near; missing > 0 {
			done = f.promote(r, done, float64(missing)*f.blockBytes, z)
		}
	}
	f.storage.lookups++
	r.lookups++
	r.lookupBlocks += q.lookupBlocks
	f.events.push(done, evLooked, id)
}

// lookupDelay draws the time until a lookup is answered: per block, plus a
// heavy-tailed wait behind the writes that grows with their backlog and with
// the other lookups outstanding.
func (f *Fleet) lookupDelay(blocks, z float64) float64 {
	p := &f.profile
	delay := p.LookupBase + p.LookupPerBlock*blocks
	if z > 0 && p.LookupSaturated > 0 {
		crowd := 1 + p.LookupCrowding*float64(f.storage.lookups)
		delay += p.LookupSaturated * blocks * math.Pow(z, p.LookupExponent) * f.service.gamma(p.LookupShape) * crowd
	}
	return delay
}

// promote reads blocks from shared storage into the CPU tier, one request after
// the other; writes take the bandwidth away.
func (f *Fleet) promote(r *replica, ready instant, bytes, z float64) instant {
	p := &f.profile
	slowness := 1/p.ReadGiBps + (1/p.ReadSaturatedGiBps-1/p.ReadGiBps)*math.Pow(z, p.LookupExponent)
	seconds := bytes / gib * slowness * f.service.gamma(p.ReadShape)
	f.storage.readFree = after(max(ready, f.storage.readFree), seconds)
	r.metrics.sharedRead.add(bytes, seconds)
	return f.storage.readFree
}

// finishLookup hands the request to the scheduler with what was found.
func (f *Fleet) finishLookup(id int32) {
	q := &f.requests.all[id]
	r := &f.replicas[q.replica]
	f.storage.lookups--
	r.lookups--
	r.lookupBlocks -= q.lookupBlocks
	if q.sharedBlocks > 0 {
		f.keep(r, q, q.sharedBlocks)
	}
	q.externalBlocks = min(r.cpu.held(q.prefix), q.prefixBlocks)
	r.metrics.lookupDelay.observe((f.now - q.arrived).seconds())
	r.metrics.externalQueries += float64(q.lookupBlocks * f.blockTokens)
	r.ready.push(id)
	f.wake(r)
}

// startRestore copies what was found to the GPU through the engine's channel.
func (f *Fleet) startRestore(r *replica, id int32) {
	q := &f.requests.all[id]
	bytes := float64(q.externalBlocks-q.cachedBlocks) * f.blockBytes
	seconds := f.profile.CopyFixed + bytes/(f.profile.CopyGBps*1e9)
	r.copyFree = after(max(f.now, r.copyFree), seconds)
	r.restoring++
	if r.cpu.held(q.prefix) > 0 {
		r.cpu.touch(q.prefix)
	}
	r.metrics.load.add(bytes, seconds, f.ranks)
	f.events.push(r.copyFree, evRestored, id)
}

// finishRestore makes the restored blocks part of the GPU cache.
func (f *Fleet) finishRestore(id int32) {
	q := &f.requests.all[id]
	r := &f.replicas[q.replica]
	r.restoring--
	tokens := (q.externalBlocks - q.cachedBlocks) * f.blockTokens
	q.privateBlocks -= r.gpu.publish(q.prefix, q.externalBlocks)
	q.cachedBlocks = q.externalBlocks
	q.restored = true
	r.metrics.external += float64(tokens)
	r.metrics.externalHits += float64(tokens)
	f.count.external += float64(tokens)
	r.ready.push(id)
	f.wake(r)
}
