package fleet

import (
	"math"
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

// What takes longer than can be counted lies ahead, however late it is by then.
func TestTimeOnlyGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := instant(rapid.Int64Range(0, int64(never)).Draw(t, "now"))
		seconds := rapid.Float64Min(0).Draw(t, "seconds")
		if at := after(now, seconds); at < now || at > never {
			t.Errorf("%v s after %v is %v", seconds, now, at)
		}
	})
	if at := after(5, 1.5e-9); at != 7 {
		t.Errorf("1.5 ns after 5 is %v; want it rounded", at)
	}
	if at := after(never, math.Inf(1)); at != never {
		t.Errorf("for ever after the end is %v; want the end", at)
	}
}
