package tuner

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

func TestLadderWalk(t *testing.T) {
	l := newLadder(store.DefaultBounds(), AdaptiveTry)
	params := func(s string) store.Params {
		p, err := store.ParseParams(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tc := range []struct {
		from string
		d    direction
		to   string
		ok   bool
	}{
		{"1024+8", direction{loadPolicy, 1}, "1024+8+adaptive", true},
		{"1024+8", direction{loadPolicy, -1}, "1024+8", false},
		{"1024+8+adaptive", direction{loadPolicy, -1}, "1024+8", true},
		{"1024+8+adaptive", direction{tokenMinimum, 1}, "2048+8+adaptive", true},
		{"1024+8", direction{tokenMinimum, 1}, "2048+8", true},
		{"1024+8", direction{tokenMinimum, -2}, "256+8", true},
		{"1024+8", direction{tokenMinimum, 99}, "inf+8", true},
		{"1024+8", direction{tokenMinimum, -99}, "1+8", true},
		{"inf+8", direction{tokenMinimum, 1}, "inf+8", false},
		{"inf+8", direction{tokenMinimum, -1}, "32768+8", true},
		{"1500+8", direction{tokenMinimum, 1}, "2048+8", true},
		{"1500+8", direction{tokenMinimum, -1}, "1024+8", true},
		{"1024+8", direction{queueLimit, 1}, "1024+16", true},
		{"1024+64", direction{queueLimit, 1}, "1024+0", true},
		{"1024+0", direction{queueLimit, 1}, "1024+0", false},
		{"1024+0", direction{queueLimit, -1}, "1024+64", true},
		{"1024+100", direction{queueLimit, -1}, "1024+64", true},
		{"1024+1", direction{queueLimit, -1}, "1024+1", false},
	} {
		got, ok := l.walk(params(tc.from), tc.d)
		if got != params(tc.to) || ok != tc.ok {
			t.Errorf("walk(%s, %+v) = %s, %v; want %s, %v", tc.from, tc.d, got, ok, tc.to, tc.ok)
		}
	}
}

// A walk from anywhere within bounds stays within them, and a step there and
// back between rungs is the identity unless it met an end.
func TestLadderStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := store.Bounds{
			MinExternalReusableTokens: store.TokenRange{Min: store.Tokens(rapid.IntRange(1, 5000).Draw(t, "min"))},
			MaxWaitingRequests:        store.WaitingRange{Min: rapid.IntRange(1, 50).Draw(t, "wmin")},
		}
		b.MinExternalReusableTokens.Max = b.MinExternalReusableTokens.Min + store.Tokens(rapid.IntRange(0, 100000).Draw(t, "width"))
		if rapid.Bool().Draw(t, "gated") {
			b.MaxWaitingRequests.Max = b.MaxWaitingRequests.Min + rapid.IntRange(0, 100).Draw(t, "wwidth")
		}
		l := newLadder(b, AdaptiveOff)
		p, _ := b.Clamp(store.Params{
			MinExternalReusableTokens: store.Tokens(rapid.Int64Range(1, 200000).Draw(t, "tokens")),
			MaxWaitingRequests:        rapid.IntRange(0, 200).Draw(t, "waiting"),
		})
		d := direction{dimension(rapid.IntRange(0, 1).Draw(t, "dim")), rapid.IntRange(-20, 20).Draw(t, "by")}
		next, ok := l.walk(p, d)
		if !b.Contains(next) {
			t.Fatalf("walk(%s, %+v) = %s leaves %+v", p, d, next, b)
		}
		if ok != (next != p) {
			t.Fatalf("walk(%s, %+v) = %s, %v", p, d, next, ok)
		}
	})
}
