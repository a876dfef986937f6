package fleet

import "github.com/kvtuner/kvtuner/plugin"

// request is one request on its way through the fleet.
type request struct {
	serial   uint64 // order of issue of its client, with the client's number
	stream   int32  // -1: open loop
	prefix   int32
	replica  int32
	decision plugin.Decision

	promptTokens, outputTokens int32
	prefixBlocks               int32
	keptBlocks                 int32 // what will be part of the prefix in the end, if more
	privateBlocks              int32 // GPU blocks the request itself has pinned
	lookupBlocks               int32 // blocks the pending lookup asks for
	externalBlocks             int32 // prefix found outside the GPU, from its start
	sharedBlocks               int32 // what shared storage will contribute
	cachedBlocks               int32 // prefix that need not be computed
	reserved, restored         bool

	prefillLeft, chunk int32
	context            int32 // tokens whose KV cache exists
	outputLeft         int32

	issued, arrived, scheduled, first instant
}

// requestPool recycles requests.
type requestPool struct {
	all  []request
	free []int32
}

func (p *requestPool) get() int32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	p.all = append(p.all, request{})
	return int32(len(p.all) - 1)
}

func (p *requestPool) put(i int32) {
	p.all[i] = request{}
	p.free = append(p.free, i)
}

// inFlight is the number of requests handed out.
func (p *requestPool) inFlight() int { return len(p.all) - len(p.free) }
