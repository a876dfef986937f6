package fleet

import "strconv"

// route picks a request's engine: the share of the prompt an engine holds (a
// visible CPU block is worth less than a GPU block) against its relative load
// as the EPP saw it last.
func (f *Fleet) route(q *request) int32 {
	p := &f.profile
	busiest := 0.0
	for i := range f.replicas {
		busiest = max(busiest, f.weigh(f.replicas[i].seen))
	}
	best, bestScore := int32(0), 0.0
	n := len(f.replicas)
	first := int(mix(f.seed, q.serial) % uint64(n)) // ties go round
	for k := range n {
		r := &f.replicas[(first+k)%n]
		gpu, cpu := f.evidence(r, q)
		held := float64(gpu) + p.RouterCPUWeight*float64(max(0, cpu-gpu))
		score := held * float64(f.blockTokens) / float64(q.promptTokens)
		if busiest > 0 {
			score -= p.RouterLoadWeight * f.weigh(r.seen) / busiest
		}
		if k == 0 || score > bestScore {
			best, bestScore = r.id, score
		}
	}
	return best
}

func (f *Fleet) weigh(l load) float64 {
	return float64(l.running) + f.profile.RouterWaitingWeight*float64(l.waiting)
}

// evidence is what the router knows of a prefix on an engine, in blocks.
func (f *Fleet) evidence(r *replica, q *request) (gpu, cpu int32) {
	gpu = min(r.gpu.held(q.prefix), q.prefixBlocks)
	return gpu, min(r.visible(q.prefix), q.prefixBlocks)
}

// visible is what the router knows of a prefix in the engine's CPU tier.
func (r *replica) visible(prefix int32) int32 {
	if !r.reported[prefix] {
		return 0
	}
	return r.cpu.held(prefix)
}

// decide asks the policy, as the EPP would after routing.
func (f *Fleet) decide(q *request) {
	r := &f.replicas[q.replica]
	gpu, cpu := f.evidence(r, q)
	f.ask.ID = strconv.FormatUint(q.serial, 36)
	f.ask.Endpoint = f.names[q.replica]
	match := &f.ask.Evidence.Prompts[0]
	match.CachedBlocks = int(max(gpu, cpu))
	match.ByTier["gpu"] = int(gpu)
	match.ByTier["cpu"] = int(cpu)
	q.decision = f.policy.Decide(&f.ask)
}

// snapshot refreshes the EPP's view of every endpoint.
func (f *Fleet) snapshot() {
	at := f.Now()
	for i := range f.replicas {
		r := &f.replicas[i]
		r.seen = r.load()
		f.policy.Observe(f.names[i], r.seen.waiting, at)
		f.policy.ObserveRunning(f.names[i], r.seen.running, at)
	}
	f.events.push(after(f.now, f.profile.SnapshotInterval), evSnapshot, 0)
}
