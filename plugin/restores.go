package plugin

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// restores follow what restores on one engine have cost lately against what the
// curves of the pool expect: these are minutes old and of all engines, and a
// storage can drown within seconds.
//
// Their ratio is over sums that halve every restoreHalfLife, with restorePrior
// restores as expected added on both sides so that few do not decide. Restores
// that have not finished yet count with the time by which they are late: a
// collapse would hide itself otherwise, for nothing of it finishes.
type restores struct {
	mu                 sync.Mutex
	at                 int64
	observed, expected float64 // seconds, as of at
	ratio              atomic.Uint64
	pending            pending
}

const (
	restoreHalfLife = 20 * time.Second
	restorePrior    = 4
	// restoreLate times the TTFT expected of a restored request is when one that
	// has not finished counts as late.
	restoreLate = 2
)

// factor by which restores cost more than expected, lately; 1 while nothing is
// known.
func (r *restores) factor() float64 {
	if bits := r.ratio.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// observe that a restore took so many seconds and was expected to take others.
func (r *restores) observe(now int64, observed, expected float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decay(now)
	r.observed += observed
	r.expected += expected
}

func (r *restores) decay(now int64) {
	keep := math.Exp2(-float64(max(now-r.at, 0)) / float64(restoreHalfLife))
	r.observed, r.expected, r.at = r.observed*keep, r.expected*keep, max(r.at, now)
}

// update the factor under a rule.
func (r *restores) update(u *rule, now int64) {
	late := r.pending.late(now, restoreLate*(u.base+u.mean))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decay(now)
	if prior := restorePrior * u.mean; prior > 0 {
		r.ratio.Store(math.Float64bits((max(r.observed, 0) + late + prior) / (r.expected + prior)))
	}
}

// observeRestore takes what a restored request's first token tells.
func (p *Policy) observeRestore(d Decision, ttft time.Duration, computed int) {
	d.restores.pending.finish(d.at)
	u := p.inForce.Load().rule
	if u == nil || computed < 0 {
		return
	}
	if expected, known := u.expects(d.ReusableTokens); known {
		now := p.elapsed()
		d.restores.observe(now, ttft.Seconds()-u.base-u.slope*float64(computed), expected)
		d.restores.update(u, now)
	}
}

// Abandon reports that a request ended without a first token: it failed, or its
// client went away. Without it a restore would count as late for a minute.
func (p *Policy) Abandon(d Decision) {
	if d.restores != nil {
		d.restores.pending.finish(d.at)
	}
}
