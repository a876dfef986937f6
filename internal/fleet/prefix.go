package fleet

import (
	"math"
	"slices"
)

// prefixTable gives every prefix a number. Prefixes of one length keep their
// numbers when the workload changes, so caches stay meaningful.
type prefixTable struct {
	tokens []int32         // by prefix; 0 where each request says
	base   map[int][]int32 // length -> its prefixes
	chats  []int32         // by stream
	traces map[*Trace][]int32
}

// conversation is the prefix of a stream's conversation.
func (t *prefixTable) conversation(stream int32) int32 { return t.chats[stream] }

// reserveChats makes sure that n streams can talk.
func (t *prefixTable) reserveChats(n int) {
	for len(t.chats) < n {
		t.chats = append(t.chats, t.add(0))
	}
}

// reserveTrace returns the prefixes of a trace.
func (t *prefixTable) reserveTrace(trace *Trace) []int32 {
	if ids, ok := t.traces[trace]; ok {
		return ids
	}
	ids := make([]int32, trace.prefixes())
	for i := range ids {
		ids[i] = t.add(0)
	}
	if t.traces == nil {
		t.traces = make(map[*Trace][]int32)
	}
	t.traces[trace] = ids
	return ids
}

func (t *prefixTable) add(tokens int) int32 {
	t.tokens = append(t.tokens, int32(tokens))
	return int32(len(t.tokens) - 1)
}

// reserve makes sure that n prefixes of a length exist and returns them.
func (t *prefixTable) reserve(tokens, n int) []int32 {
	if t.base == nil {
		t.base = make(map[int][]int32)
	}
	ids := t.base[tokens]
	for len(ids) < n {
		ids = append(ids, t.add(tokens))
	}
	t.base[tokens] = ids
	return ids[:n]
}

// prefixMix draws prefixes as a workload wants them.
type prefixMix struct {
	classes    [][]int32
	cumulative []float64
	popularity [][]float64 // by class, cumulative; nil: all alike
}

func newPrefixMix(t *prefixTable, w Workload) prefixMix {
	var m prefixMix
	total := 0.0
	for _, c := range w.Prefixes {
		total += c.Weight
		ids := t.reserve(c.Tokens, w.classSize(c))
		m.classes = append(m.classes, ids)
		m.cumulative = append(m.cumulative, total)
		if w.Zipf > 0 {
			m.popularity = append(m.popularity, zipf(len(ids), w.Zipf))
		}
	}
	return m
}

// zipf is the cumulative popularity of n ranks.
func zipf(n int, exponent float64) []float64 {
	all, total := make([]float64, n), 0.0
	for k := range all {
		total += math.Pow(float64(k+1), -exponent)
		all[k] = total
	}
	return all
}

func (m prefixMix) draw(r *random) int32 {
	last := len(m.classes) - 1
	u := r.float() * m.cumulative[last]
	i := 0
	for i < last && u >= m.cumulative[i] {
		i++
	}
	class := m.classes[i]
	if m.popularity == nil {
		return class[int(r.float()*float64(len(class)))]
	}
	ranks := m.popularity[i]
	k, _ := slices.BinarySearch(ranks, r.float()*ranks[len(ranks)-1])
	return class[min(k, len(class)-1)]
}
