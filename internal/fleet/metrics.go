package fleet

// metrics are the plain counters of one engine; gather.go gives them vLLM's
// names.
type metrics struct {
	ttft, interToken                 histogram
	endToEnd, queue, prefill, decode histogram
	lookupDelay                      histogram

	prompt, generated                float64
	localCompute, localHit, external float64
	finished                         float64
	prefixQueries, prefixHits        float64
	externalQueries, externalHits    float64

	load, store transfers
	sharedRead  volume
}

func newMetrics() metrics {
	return metrics{
		ttft:        newHistogram(ttftEdges),
		interToken:  newHistogram(interTokenEdges),
		endToEnd:    newHistogram(requestEdges),
		queue:       newHistogram(requestEdges),
		prefill:     newHistogram(requestEdges),
		decode:      newHistogram(requestEdges),
		lookupDelay: newHistogram(lookupEdges),
		load:        transfers{size: newHistogram(sizeEdges)},
		store:       transfers{size: newHistogram(sizeEdges)},
	}
}

// Upper bucket edges as vLLM has them.
var (
	ttftEdges       = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	interTokenEdges = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestEdges    = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	lookupEdges     = []float64{.001, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10}
	sizeEdges       = []float64{1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30}
)

// histogram counts observations in buckets; the last count is above all edges.
type histogram struct {
	edges  []float64
	counts []uint64
	sum    float64
	n      uint64
}

func newHistogram(edges []float64) histogram {
	return histogram{edges: edges, counts: make([]uint64, len(edges)+1)}
}

func (h *histogram) observe(v float64) { h.observeN(v, 1) }

func (h *histogram) observeN(v float64, n uint64) {
	i := 0
	for i < len(h.edges) && v > h.edges[i] {
		i++
	}
	h.counts[i] += n
	h.sum += v * float64(n)
	h.n += n
}

// volume is data moved and the time it took.
type volume struct{ bytes, seconds float64 }

func (v *volume) add(bytes, seconds float64) {
	v.bytes += bytes
	v.seconds += seconds
}

// transfers are the operations of one direction, one a rank: vLLM sums bytes
// and seconds over ranks.
type transfers struct {
	volume
	size histogram
}

func (t *transfers) add(bytes, seconds, ranks float64) {
	t.volume.add(bytes, seconds*ranks)
	t.size.observeN(bytes/ranks, uint64(ranks))
}
