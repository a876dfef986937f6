package fleet

// fifo is a queue of requests on a ring that grows as needed.
type fifo struct {
	ring    []int32
	head, n int
}

func (q *fifo) len() int    { return q.n }
func (q *fifo) peek() int32 { return q.ring[q.head] }

func (q *fifo) push(id int32) {
	if q.n == len(q.ring) {
		grown := make([]int32, max(16, 2*q.n))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = id
	q.n++
}

func (q *fifo) pop() {
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}
