package plugin

import "sync/atomic"

// pending counts requests that wait for their first token, by when they began, so
// that how long they have waited so far is known. What began more than a minute
// ago is forgotten: its end may have been missed. It takes no lock.
type pending [pendingSlots]atomic.Uint64

const (
	pendingSlots = 128
	pendingSlot  = 500e6 // nanoseconds

	// A slot holds the number of its period, and in its lower bits a count.
	pendingBits  = 24
	pendingCount = 1<<pendingBits - 1
)

// period of a time since the policy's epoch, from 1 on.
func period(at int64) uint64 { return uint64(max(at, 0)/pendingSlot) + 1 }

func (p *pending) start(at int64) {
	n := period(at)
	slot := &p[n%pendingSlots]
	for {
		old := slot.Load()
		next := old + 1
		if old>>pendingBits != n {
			next = n<<pendingBits + 1
		}
		if old&pendingCount == pendingCount && old>>pendingBits == n || slot.CompareAndSwap(old, next) {
			return
		}
	}
}

// finish takes back a start, unless it is forgotten.
func (p *pending) finish(at int64) {
	n := period(at)
	slot := &p[n%pendingSlots]
	for {
		old := slot.Load()
		if old>>pendingBits != n || old&pendingCount == 0 || slot.CompareAndSwap(old, old-1) {
			return
		}
	}
}

// late sums, in seconds, by how much more than patience each has waited.
func (p *pending) late(now int64, patience float64) float64 {
	n, sum := period(now), 0.0
	for i := range p {
		old := p[i].Load()
		count, age := old&pendingCount, n-old>>pendingBits
		if count == 0 || age == 0 || age >= pendingSlots {
			continue
		}
		waited := (float64(age) - 0.5) * pendingSlot / 1e9
		sum += float64(count) * max(waited-patience, 0)
	}
	return sum
}
