package tuner

import (
	"cmp"
	"slices"

	"github.com/kvtuner/kvtuner/store"
)

// ladder holds the rungs of both thresholds that lie within bounds, strictest
// token minimum last and loosest queue limit last, and the load policies allowed. Neighbouring rungs differ by
// a factor of two, because smaller differences drown in run-to-run noise; both
// ends are regimes of their own.
type ladder struct {
	tokens   []store.Tokens
	waiting  []int
	policies []store.LoadPolicy
}

func newLadder(b store.Bounds, a AdaptiveSearch) ladder {
	l := ladder{policies: a.policies()}
	tokens := []store.Tokens{1}
	for t := store.Tokens(64); t <= 32768; t *= 2 {
		tokens = append(tokens, t)
	}
	tokens = append(tokens, store.Never, b.MinExternalReusableTokens.Min, b.MinExternalReusableTokens.Max)
	slices.Sort(tokens)
	for _, t := range slices.Compact(tokens) {
		if t >= b.MinExternalReusableTokens.Min && t <= b.MinExternalReusableTokens.Max {
			l.tokens = append(l.tokens, t)
		}
	}
	waiting := []int{1, 2, 4, 8, 16, 32, 64, store.NoGate, b.MaxWaitingRequests.Min, b.MaxWaitingRequests.Max}
	slices.SortFunc(waiting, store.CompareWaiting)
	for _, w := range slices.Compact(waiting) {
		if b.Contains(store.Params{MinExternalReusableTokens: b.MinExternalReusableTokens.Min, MaxWaitingRequests: w}) {
			l.waiting = append(l.waiting, w)
		}
	}
	return l
}

// dimension is one of the parameters.
type dimension int

const (
	tokenMinimum dimension = iota
	queueLimit
	loadPolicy
)

// direction is a way to walk on the ladder. By > 0 raises the token minimum,
// loosens the queue limit or goes from threshold to adaptive.
type direction struct {
	Dim dimension `json:"dim"`
	By  int       `json:"by"`
}

// walk moves p by d; ok is false if p is at that end already. A step that would
// leave the ladder ends on its last rung.
func (l ladder) walk(p store.Params, d direction) (next store.Params, ok bool) {
	next = p
	if d.Dim == loadPolicy {
		i, exact := slices.BinarySearch(l.policies, p.LoadPolicy)
		next.LoadPolicy = l.policies[landing(i, exact, d.By, len(l.policies))]
		return next, next != p
	}
	if d.Dim == queueLimit {
		i, exact := slices.BinarySearchFunc(l.waiting, p.MaxWaitingRequests, store.CompareWaiting)
		next.MaxWaitingRequests = l.waiting[landing(i, exact, d.By, len(l.waiting))]
		return next, next != p
	}
	i, exact := slices.BinarySearch(l.tokens, p.MinExternalReusableTokens)
	next.MinExternalReusableTokens = l.tokens[landing(i, exact, d.By, len(l.tokens))]
	return next, next != p
}

// landing is the rung reached from the insertion point i. From between two
// rungs the first step reaches the nearer one in its direction.
func landing(i int, exact bool, by, n int) int {
	if !exact && by > 0 {
		by--
	}
	return min(max(i+by, 0), n-1)
}

// toward walks from one setting to another, at most steps rungs in each dimension.
func (l ladder) toward(from, to store.Params, steps int) store.Params {
	p := from
	p.LoadPolicy = to.LoadPolicy
	for _, dim := range []dimension{tokenMinimum, queueLimit} {
		for range steps {
			by := l.side(p, to, dim)
			if by == 0 {
				break
			}
			next, ok := l.walk(p, direction{Dim: dim, By: by})
			if !ok || l.side(next, to, dim) == -by { // between two rungs
				break
			}
			p = next
		}
	}
	return p
}

// side tells on which side of p the other lies in a dimension: -1, 0 or 1.
func (l ladder) side(p, other store.Params, dim dimension) int {
	if dim == queueLimit {
		return store.CompareWaiting(other.MaxWaitingRequests, p.MaxWaitingRequests)
	}
	return cmp.Compare(other.MinExternalReusableTokens, p.MinExternalReusableTokens)
}

// rung is the direction of a step from one to the other: the
// token minimum's, if it differs.
func rung(from, to store.Params) direction {
	if by := cmp.Compare(to.MinExternalReusableTokens, from.MinExternalReusableTokens); by != 0 {
		return direction{Dim: tokenMinimum, By: by}
	}
	return direction{Dim: queueLimit, By: store.CompareWaiting(to.MaxWaitingRequests, from.MaxWaitingRequests)}
}
