package fleet

// prefixTable gives every prefix a number. Prefixes of one length keep their
// numbers when the workload changes, so caches stay meaningful.
type prefixTable struct {
	tokens []int32         // by prefix
	base   map[int][]int32 // length -> its prefixes
}

// reserve makes sure that n prefixes of a length exist and returns them.
func (t *prefixTable) reserve(tokens, n int) []int32 {
	if t.base == nil {
		t.base = make(map[int][]int32)
	}
	ids := t.base[tokens]
	for len(ids) < n {
		ids = append(ids, int32(len(t.tokens)))
		t.tokens = append(t.tokens, int32(tokens))
	}
	t.base[tokens] = ids
	return ids[:n]
}

// prefixMix draws prefixes as a workload wants them.
type prefixMix struct {
	classes    [][]int32
	cumulative []float64
}

func newPrefixMix(t *prefixTable, w Workload) prefixMix {
	var m prefixMix
	total := 0.0
	for _, c := range w.Prefixes {
		total += c.Weight
		m.classes = append(m.classes, t.reserve(c.Tokens, w.classSize(c)))
		m.cumulative = append(m.cumulative, total)
	}
	return m
}

func (m prefixMix) draw(r *random) int32 {
	last := len(m.classes) - 1
	u := r.float() * m.cumulative[last]
	i := 0
	for i < last && u >= m.cumulative[i] {
		i++
	}
	return m.classes[i][int(r.float()*float64(len(m.classes[i])))]
}
