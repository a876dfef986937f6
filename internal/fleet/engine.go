package fleet

import "math"

// replica is one engine with its caches and queues.
type replica struct {
	id  int32
	gpu *blockCache
	cpu *blockCache
	// reported tells, by prefix, whether the router knows what the CPU tier holds
	// of it.
	reported []bool

	ready    fifo    // requests the scheduler may start, oldest first
	running  []int32 // prefilling and decoding, oldest first
	decoding int
	context  int64 // tokens of KV cache the decoding requests read

	lookups, restoring int
	lookupBlocks       int32
	copyFree           instant
	storing            float64 // seconds that stores under way will still take from steps

	stepping    bool
	stepStarted instant

	seen    load // what the EPP saw last
	metrics metrics
}

// load is an endpoint's queues.
type load struct{ running, waiting int }

func (r *replica) load() load {
	return load{running: len(r.running), waiting: r.ready.len() + r.lookups + r.restoring}
}

// wake starts a step if the engine is idle and has something to do.
func (f *Fleet) wake(r *replica) {
	if !r.stepping {
		f.startStep(r)
	}
}

// startStep gives the step's token budget to decodes, then to prefills under
// way, then to new requests, and schedules the step's end.
func (f *Fleet) startStep(r *replica) {
	budget := f.tokenBudget - int32(r.decoding)
	compute := 0.0
	for _, id := range r.running {
		q := &f.requests.all[id]
		if q.prefillLeft > 0 && budget > 0 {
			compute += f.giveChunk(q, &budget)
		}
	}
	for budget > 0 && r.ready.len() > 0 && len(r.running) < f.maxSequences {
		id := r.ready.peek()
		q := &f.requests.all[id]
		if !q.reserved && !f.reserve(r, q) {
			break
		}
		r.ready.pop()
		if !q.restored && q.externalBlocks > q.cachedBlocks {
			f.startRestore(r, id)
			continue
		}
		f.admit(r, id)
		compute += f.giveChunk(q, &budget)
	}
	if len(r.running) == 0 {
		return
	}
	r.stepping = true
	r.stepStarted = f.now
	f.events.push(after(f.now, f.stepSeconds(r, compute)), evStep, r.id)
}

// stepSeconds is the length of a step: weights and prefill compute overlap
// imperfectly; decodes, their context and lookups being polled add to it.
func (f *Fleet) stepSeconds(r *replica, compute float64) float64 {
	p := &f.profile
	s := p.StepBase
	if compute > 0 {
		s *= math.Pow(1+math.Pow(compute/p.StepBase, p.OverlapExponent), 1/p.OverlapExponent)
	}
	s += p.StepPerRequest * float64(r.decoding)
	s += p.StepPerContext * float64(r.context)
	s += p.PollPerBlock * float64(r.lookupBlocks)
	s *= 1 + p.StepInflation*f.storage.saturation(f.now)
	drag := math.Min(r.storing, s*p.StoreDrag)
	r.storing -= drag
	return s + drag
}

// giveChunk takes prefill tokens from the budget and returns their compute.
func (f *Fleet) giveChunk(q *request, budget *int32) float64 {
	q.chunk = min(q.prefillLeft, *budget)
	*budget -= q.chunk
	n := float64(q.chunk)
	return n * f.profile.PrefillPerToken * (1 + f.profile.PrefillGrowth*(float64(q.context)+n/2))
}

// reserve pins a request's GPU blocks: the prefix held, room for the rest of
// the prompt and for the output.
func (f *Fleet) reserve(r *replica, q *request) bool {
	r.gpu.pin(q.prefix)
	held := min(r.gpu.held(q.prefix), q.prefixBlocks)
	need := f.blocks(q.promptTokens+q.outputTokens) - held
	if !r.gpu.take(need) {
		r.gpu.unpin(q.prefix)
		return false
	}
	q.reserved = true
	q.privateBlocks = need
	q.cachedBlocks = held
	m := &r.metrics
	m.prefixQueries += float64(q.promptTokens)
	m.prefixHits += float64(held * f.blockTokens)
	m.localHit += float64(held * f.blockTokens)
	return true
}

// admit moves a request from waiting to running.
func (f *Fleet) admit(r *replica, id int32) {
	q := &f.requests.all[id]
	q.scheduled = f.now
	q.context = q.cachedBlocks * f.blockTokens
	q.prefillLeft = q.promptTokens - q.context
	q.outputLeft = q.outputTokens
	r.running = append(r.running, id)
	r.metrics.localCompute += float64(q.prefillLeft)
	r.metrics.queue.observe((f.now - q.arrived).seconds())
}

// endStep gives every decoding request a token and moves prefills on.
func (f *Fleet) endStep(r *replica) {
	r.stepping = false
	took := (f.now - r.stepStarted).seconds()
	r.metrics.interToken.observeN(took, uint64(r.decoding))
	r.metrics.generated += float64(r.decoding)
	r.context += int64(r.decoding)
	f.count.output += float64(r.decoding)
	keep := r.running[:0]
	for _, id := range r.running {
		if !f.progress(r, id) {
			keep = append(keep, id)
		}
	}
	r.running = keep
	f.startStep(r)
}

// progress applies a step to one request; true if it is finished.
func (f *Fleet) progress(r *replica, id int32) bool {
	q := &f.requests.all[id]
	if q.prefillLeft > 0 {
		q.prefillLeft -= q.chunk
		q.context += q.chunk
		q.chunk = 0
		if q.prefillLeft > 0 {
			return false
		}
		f.endPrefill(r, q)
		r.decoding++
		r.context += int64(q.context)
	} else {
		q.context++
	}
	q.outputLeft--
	if q.outputLeft > 0 {
		return false
	}
	r.decoding--
	r.context -= int64(q.context)
	f.finish(r, id)
	return true
}

// endPrefill publishes the prefix, stores it and emits the first token.
func (f *Fleet) endPrefill(r *replica, q *request) {
	q.first = f.now
	q.privateBlocks -= r.gpu.publish(q.prefix, q.prefixBlocks)
	if q.cachedBlocks < q.prefixBlocks && !q.decision.DisableOffload {
		f.storePrefix(r, q)
	}
	ttft := (f.now - q.arrived).seconds()
	r.metrics.ttft.observe(ttft)
	r.metrics.prefill.observe((f.now - q.scheduled).seconds())
	r.metrics.prompt += float64(q.promptTokens)
	r.metrics.generated++
	f.count.output++
	f.count.prompt += float64(q.promptTokens)
	f.policy.ObserveFirstToken(q.decision, (f.now - q.arrived).duration(), int(q.promptTokens-q.cachedBlocks*f.blockTokens))
}

// finish releases a request's blocks and tells its client.
func (f *Fleet) finish(r *replica, id int32) {
	q := &f.requests.all[id]
	if q.keptBlocks > q.prefixBlocks {
		q.privateBlocks -= r.gpu.publish(q.prefix, q.keptBlocks)
	}
	if !q.decision.DisableOffload {
		f.storePrivate(r, q)
	}
	r.gpu.retire(q.privateBlocks)
	r.gpu.unpin(q.prefix)
	m := &r.metrics
	m.finished++
	m.endToEnd.observe((f.now - q.arrived).seconds())
	m.decode.observe((f.now - q.first).seconds())
	f.policy.ObserveOutput(q.decision, int(q.outputTokens))
	f.complete(id)
}
