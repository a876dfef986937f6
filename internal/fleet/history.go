package fleet

import "context"

// historyRounds is how often each prefix was asked for, on average, in the
// earlier run that warmed the caches: enough for the CPU tier, the largest, to
// turn over.
const historyRounds = 8

// replayHistory fills the caches with the traffic of an earlier run: requests
// go to an engine that holds their prefix, else to one at random. It takes no
// virtual time and leaves the storage idle.
func (f *Fleet) replayHistory(ctx context.Context) error {
	if len(f.mix.classes) == 0 {
		return nil // conversations and traces bring their own past
	}
	r := newRandom(f.seed, forHistory)
	for n := range historyRounds * len(f.prefixes.tokens) {
		f.replayOne(r, f.mix.draw(r))
		if n%eventsBetweenLooks == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (f *Fleet) replayOne(rnd *random, prefix int32) {
	tokens := f.prefixes.tokens[prefix]
	blocks := tokens / f.blockTokens
	private := f.blocks(tokens+int32(f.workload.NewTokens+f.workload.OutputTokens)) - blocks
	r := f.holder(prefix, int(rnd.float()*float64(len(f.replicas))))
	missed := r.gpu.held(prefix) < blocks
	if r.gpu.take(private) {
		r.gpu.retire(private)
	}
	r.gpu.put(prefix, blocks)
	if missed && r.cpu.put(prefix, blocks) {
		r.reported[prefix] = f.reports(historic | uint64(prefix)<<8 | uint64(r.id))
	}
}

// historic sets the serials of history apart from those of requests.
const historic = 1 << 63

// holder is the engine that holds most of a prefix, GPU before CPU tier; the
// given one if none does.
func (f *Fleet) holder(prefix int32, otherwise int) *replica {
	best := &f.replicas[otherwise]
	for i := range f.replicas {
		r := &f.replicas[i]
		if r.gpu.held(prefix) > best.gpu.held(prefix) {
			best = r
		}
	}
	if best.gpu.held(prefix) > 0 {
		return best
	}
	for i := range f.replicas {
		r := &f.replicas[i]
		if r.visible(prefix) > best.visible(prefix) {
			best = r
		}
	}
	return best
}
