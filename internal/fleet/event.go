package fleet

import "time"

// instant is virtual time in nanoseconds since the fleet's start.
type instant int64

const second instant = 1e9

// never is later than any run lasts, 146 years.
const never instant = 1 << 62

// after is s seconds, of 0 or more, after t. What would take for ever happens
// never, rather than before t, where the nanoseconds do not fit.
func after(t instant, s float64) instant {
	if later := s * 1e9; later < float64(never-t) {
		return t + instant(later+0.5)
	}
	return never
}

func (t instant) seconds() float64 { return float64(t) / 1e9 }

func (t instant) duration() time.Duration { return time.Duration(t) }

// eventKind says what happens at an event.
type eventKind uint8

const (
	evSnapshot eventKind = iota // the EPP refreshes its view of every endpoint
	evIssue                     // the open loop issues its next request
	evArrive                    // a request reaches the router
	evLooked                    // a lookup is answered
	evRestored                  // a restore's blocks are on the GPU
	evStep                      // an engine step ends
	evThought                   // a closed-loop client's pause ends
)

// event is one entry of the queue; seq breaks ties in order of creation.
type event struct {
	at   instant
	seq  uint64
	id   int32 // request or replica
	kind eventKind
}

func (e event) before(o event) bool {
	return e.at < o.at || (e.at == o.at && e.seq < o.seq)
}

// eventQueue is a binary heap of events.
type eventQueue struct {
	heap []event
	seq  uint64
}

func (q *eventQueue) push(at instant, kind eventKind, id int32) {
	e := event{at: at, seq: q.seq, id: id, kind: kind}
	q.seq++
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

func (q *eventQueue) pop() event {
	top := q.heap[0]
	n := len(q.heap) - 1
	last := q.heap[n]
	q.heap = q.heap[:n]
	if n > 0 {
		q.sink(last)
	}
	return top
}

func (q *eventQueue) sink(e event) {
	n, i := len(q.heap), 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && q.heap[child+1].before(q.heap[child]) {
			child++
		}
		if !q.heap[child].before(e) {
			break
		}
		q.heap[i] = q.heap[child]
		i = child
	}
	q.heap[i] = e
}

// next is the time of the earliest event; there always is one, since snapshots
// schedule themselves.
func (q *eventQueue) next() instant { return q.heap[0].at }
