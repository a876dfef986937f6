package web

import (
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

// A sentence begins with a capital, but for the name of who commanded it.
func TestReasonKeepsNames(t *testing.T) {
	for want, d := range map[string]store.Decision{
		"Trying 1+0": {Reason: "trying 1+0"}, "alice resumed tuning": {Reason: "alice resumed tuning", Actor: "alice"}, "Paused by bob": {Reason: "paused by bob", Actor: "bob"},
	} {
		if got := reason(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
