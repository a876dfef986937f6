package plugin

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Against a list of when each request began: what is late agrees, as closely as
// periods are long, and nothing stays for longer than they are remembered.
func TestPending(t *testing.T) {
	const second = int64(1e9)
	rapid.Check(t, func(t *rapid.T) {
		var p pending
		var began []int64
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 20*second).Draw(t, "pass")
			if len(began) > 0 && rapid.Bool().Draw(t, "finish") {
				i := rapid.IntRange(0, len(began)-1).Draw(t, "which")
				p.finish(began[i])
				began = append(began[:i], began[i+1:]...)
			} else {
				p.start(now)
				began = append(began, now)
			}
		}
		const patience = 1.0
		low, high := 0.0, 0.0
		for _, at := range began {
			age := float64(now-at) / 1e9
			if age < (pendingSlots-1)*pendingSlot/1e9 {
				low += max(age-0.75-patience, 0)
			}
			if age < (pendingSlots+1)*pendingSlot/1e9 {
				high += max(age+0.75-patience, 0)
			}
		}
		if got := p.late(now, patience); got < low-1e-9 || got > high+1e-9 {
			t.Fatalf("late %v s, want %v to %v", got, low, high)
		}
		if got := p.late(now+pendingSlots*pendingSlot, 0); got != 0 {
			t.Fatalf("%v s late after all is forgotten", got)
		}
	})
}

func TestPendingNeverWraps(t *testing.T) {
	var p pending
	p.finish(0)
	if got := p.late(10e9, 0); got != 0 {
		t.Errorf("an end without a beginning leaves %v s", got)
	}
	p.start(math.MaxInt64 / 4)
	if got := p.late(0, 0); got != 0 {
		t.Errorf("a beginning in the future leaves %v s", got)
	}
}
