package fleet

import (
	"testing"

	"pgregory.net/rapid"
)

func TestEventsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q eventQueue
		times := rapid.SliceOfN(rapid.Int64Range(0, 20), 1, 60).Draw(t, "times")
		for _, at := range times {
			q.push(instant(at), evArrive, 0)
		}
		last := q.pop()
		for range len(times) - 1 {
			e := q.pop()
			if e.before(last) {
				t.Fatalf("event %+v after %+v", e, last)
			}
			last = e
		}
	})
}
