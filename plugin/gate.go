package plugin

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/kvtuner/kvtuner/store"
)

// maxGateLimit is the largest queue limit a gate can hold.
const maxGateLimit = gateWords*64 - 1

const gateWords = 16

// never is the time of a sample that was not taken.
const never = math.MinInt64

// gate smooths the number of requests waiting in one engine and says whether it
// is closed under a limit. It closes when the average reaches the limit and
// reopens when it falls to half of it.
//
// Which side of that band the average came from depends on the limit, and the
// limit changes with arms and revisions. So the gate remembers the answer for
// every limit at once, a bit each: whatever limit is asked for, the answer is as
// if it had been in force since the first sample.
//
// One writer at a time, under mu; readers take no lock.
type gate struct {
	at   atomic.Int64  // of the last sample; written after what depends on it
	ewma atomic.Uint64 // bits of a float64
	mu   sync.Mutex
	shut [gateWords]atomic.Uint64
}

// decay holds a gate's constants, in nanoseconds.
type decay struct {
	halfLife float64
	maxAge   int64
}

// observe takes one sample. A repeated or older one is ignored; after a silence
// longer than the maximum age, or if the clock was set back, the past is
// forgotten. It returns the gate under limit before and after.
func (g *gate) observe(d decay, now, at int64, waiting float64, limit int) (before, after bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.closedAt(limit)
	last := g.at.Load()
	switch {
	case last == never || last-now > d.maxAge || at-last > d.maxAge:
		g.reset()
	case at <= last:
		return before, before
	default:
		average := g.average()
		waiting = average + (waiting-average)*(1-math.Exp2(-float64(at-last)/d.halfLife))
	}
	g.ewma.Store(math.Float64bits(waiting))
	g.move(waiting)
	g.at.Store(at)
	return before, g.closedAt(limit)
}

func (g *gate) reset() {
	for i := range g.shut {
		g.shut[i].Store(0)
	}
}

// move closes the gate under every limit that the average has reached, and
// reopens it under every limit of twice the average or more.
func (g *gate) move(average float64) {
	reached := int(min(average, maxGateLimit)) + 1
	halved := int(min(math.Ceil(2*average), maxGateLimit+1))
	for i := range g.shut {
		word := g.shut[i].Load()
		moved := (word | below(reached-64*i)) & below(halved-64*i)
		if moved != word {
			g.shut[i].Store(moved)
		}
	}
}

// below has the lowest n bits set.
func below(n int) uint64 {
	switch {
	case n <= 0:
		return 0
	case n >= 64:
		return math.MaxUint64
	default:
		return 1<<n - 1
	}
}

// closedAt says whether the last sample left the gate closed under limit.
func (g *gate) closedAt(limit int) bool {
	if limit <= store.NoGate || limit > maxGateLimit {
		return false
	}
	return g.shut[limit/64].Load()>>(limit%64)&1 == 1
}

// average is the smoothed number of requests waiting as of the last sample.
func (g *gate) average() float64 { return math.Float64frombits(g.ewma.Load()) }

// fresh says whether the last sample is evidence at now.
func (g *gate) fresh(d decay, now int64) bool {
	at := g.at.Load()
	return at != never && now-at <= d.maxAge && at-now <= d.maxAge
}
