package kvevents

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/plugin"
)

// scripted is a source whose live messages are given, and whose replays are what
// an engine's buffer has.
type scripted struct {
	engine  *testEngine
	live    []message
	replays bool
	// drop is how many messages of a replay get through; 0 is all. What a full
	// ROUTER socket drops includes the end of the replay.
	drop int
	hole uint64 // number that the next replay leaves out; 0 is none
}

func (s *scripted) subscribe(context.Context) (stream, error) { return s, nil }

func (s *scripted) close() {}

func (s *scripted) receive() (message, error) {
	if len(s.live) == 0 {
		return message{}, io.EOF
	}
	m := s.live[0]
	s.live = s.live[1:]
	return m, nil
}

var errCut = errors.New("no answer in time")

func (s *scripted) replay(_ context.Context, from uint64, yield func(message) error) error {
	if !s.replays {
		return errNoReplay
	}
	passed := 0
	for _, m := range s.engine.buffer {
		if m.number < from {
			continue
		}
		if s.hole > 0 && m.number == s.hole {
			s.hole = 0
			continue
		}
		if passed++; s.drop > 0 && passed > s.drop {
			return errCut
		}
		if err := yield(m); err != nil {
			return err
		}
	}
	return nil
}

// testFollower has a clock that stands still.
func testFollower(t testing.TB, s source) *follower {
	t.Helper()
	now := time.Unix(1_000_000, 0)
	return newFollower(s, testConfig(t, `{"blockSize": 4}`), newHasher(), testMetrics(t), slog.New(slog.DiscardHandler), func() time.Time { return now })
}

// connection feeds live messages to a follower over one connection.
func (f *follower) connection(s *scripted, live ...message) error {
	s.live = live
	return f.follow(context.Background())
}

// agree compares what a follower knows with what the engine holds.
func agree(f *follower, e *testEngine) string {
	prompt := Prompt{Tokens: sequenceOf(0, 0, 6)}
	all, byTier := e.prefix(prompt.Tokens)
	got, _, why := f.index.match(&chains{prompt: &prompt})
	if why != lookupKnown {
		return lookupNames[why]
	}
	return cmp.Diff(plugin.PrefixMatch{CachedBlocks: all, ByTier: byTier}, got)
}

func TestFollowerHeals(t *testing.T) {
	a := sequenceOf(0, 0, 6)
	type step func(e *testEngine, s *scripted) []message
	tests := map[string]struct {
		replays bool
		steps   []step
		whole   bool
		resets  map[loss]float64
		lost    float64
	}{
		"in order": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				return []message{e.publish(e.store("gpu", a, 0, 2)), e.publish(e.store("gpu", a, 2, 6))}
			}},
			whole: true,
		},
		"joined late, with the whole history": {
			replays: true,
			steps: []step{func(e *testEngine, _ *scripted) []message {
				e.publish(e.store("gpu", a, 0, 2))
				return []message{e.publish(e.store("gpu", a, 2, 6))}
			}},
			whole: true,
		},
		"joined late, idle engine": {
			replays: true,
			steps: []step{func(e *testEngine, _ *scripted) []message {
				e.publish(e.store("gpu", a, 0, 2))
				return nil
			}},
			whole: true,
		},
		"joined late, without": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				e.publish()
				return []message{e.publish(e.store("gpu", a, 0, 6))}
			}},
		},
		"a gap, replayed": {
			replays: true,
			steps: []step{func(e *testEngine, _ *scripted) []message {
				first := e.publish(e.store("gpu", a, 0, 2))
				e.publish(e.store("gpu", a, 2, 4))
				e.publish(e.store("cpu", a, 0, 3))
				return []message{first, e.publish(e.store("gpu", a, 4, 6))}
			}},
			whole: true, lost: 0, // the replay at the start has them all
		},
		"a gap, without replay": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				first := e.publish(e.store("gpu", a, 0, 2))
				e.publish(e.clear())
				return []message{first, e.publish(e.store("gpu", a, 0, 3))}
			}},
			resets: map[loss]float64{lossGap: 1}, lost: 1,
		},
		"repetitions and disorder": {
			replays: true,
			steps: []step{func(e *testEngine, _ *scripted) []message {
				m := []message{e.publish(e.store("gpu", a, 0, 2)), e.publish(e.store("gpu", a, 2, 4)), e.publish(e.store("gpu", a, 4, 6))}
				return []message{m[2], m[0], m[1], m[2], m[0]}
			}},
			whole: true,
		},
		"repetitions, without replay": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				m := []message{e.publish(e.store("gpu", a, 0, 2)), e.publish(e.store("gpu", a, 0, 2))}
				return []message{m[0], m[0], m[1], m[0], m[1]}
			}},
			whole: true,
		},
		"reconnected to the same engine": {
			replays: true,
			steps: []step{
				func(e *testEngine, _ *scripted) []message { return []message{e.publish(e.store("gpu", a, 0, 2))} },
				func(e *testEngine, _ *scripted) []message {
					e.publish(e.store("gpu", a, 2, 4))
					return []message{e.publish(e.store("gpu", a, 4, 6))}
				},
			},
			whole: true,
		},
		"reconnected to an engine restarted": {
			replays: true,
			steps: []step{
				func(e *testEngine, _ *scripted) []message {
					return []message{e.publish(e.store("gpu", a, 0, 2)), e.publish(e.store("cpu", a, 0, 2))}
				},
				func(e *testEngine, _ *scripted) []message {
					e.restart()
					return []message{e.publish(e.store("gpu", a, 0, 1))}
				},
			},
			whole: true, resets: map[loss]float64{lossRestart: 1},
		},
		"restarted and as far again": {
			replays: true,
			steps: []step{
				func(e *testEngine, _ *scripted) []message { return []message{e.publish(e.store("gpu", a, 0, 6))} },
				func(e *testEngine, _ *scripted) []message {
					e.restart()
					e.publish(e.store("gpu", a, 0, 1))
					return []message{e.publish(e.store("gpu", a, 1, 2))}
				},
			},
			whole: true, resets: map[loss]float64{lossRestart: 1},
		},
		"restarted behind a proxy that stays connected": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				first := []message{e.publish(e.store("gpu", a, 0, 2)), e.publish(e.store("gpu", a, 2, 4))}
				e.restart()
				return append(first, e.publish(e.store("gpu", a, 0, 1)))
			}},
			whole: true, resets: map[loss]float64{lossRestart: 1},
		},
		"reconnected, without replay": {
			steps: []step{
				func(e *testEngine, _ *scripted) []message { return []message{e.publish(e.store("gpu", a, 0, 2))} },
				func(e *testEngine, _ *scripted) []message {
					e.publish(e.clear())
					return []message{e.publish(e.store("gpu", a, 0, 3))}
				},
			},
			resets: map[loss]float64{lossReconnect: 1},
		},
		"the buffer no longer reaches back": {
			replays: true,
			steps: []step{
				func(e *testEngine, _ *scripted) []message {
					e.steps = 2
					return []message{e.publish(e.store("gpu", a, 0, 2))}
				},
				func(e *testEngine, _ *scripted) []message {
					e.publish(e.clear())
					e.publish()
					e.publish()
					return []message{e.publish(e.store("gpu", a, 0, 3))}
				},
			},
			resets: map[loss]float64{lossGap: 1}, lost: 2,
		},
		"restarted, and the buffer begins just after the last message": {
			replays: true,
			steps: []step{
				func(e *testEngine, _ *scripted) []message {
					e.steps = 2
					return []message{e.publish(e.store("gpu", a, 0, 2))}
				},
				func(e *testEngine, _ *scripted) []message {
					e.restart()
					e.publish()
					e.publish()
					e.publish(e.store("gpu", a, 0, 1))
					return nil
				},
			},
			resets: map[loss]float64{lossGap: 1},
		},
		"a replay that breaks off": {
			replays: true,
			steps: []step{func(e *testEngine, s *scripted) []message {
				s.drop = 2
				for i := range 6 {
					e.publish(e.store("gpu", a, i, i+1))
				}
				return nil
			}},
			whole: true,
		},
		"a replay with a hole": {
			replays: true,
			steps: []step{func(e *testEngine, s *scripted) []message {
				s.hole = 3
				for i := range 6 {
					e.publish(e.store("gpu", a, i, i+1))
				}
				return nil
			}},
			whole: true,
		},
		"not understood": {
			steps: []step{func(e *testEngine, _ *scripted) []message {
				first := e.publish(e.store("gpu", a, 0, 6))
				bad := e.publish(e.clear())
				bad.payload = []byte{0x92, 1, 0x91, 0x91, 1}
				return []message{first, bad, e.publish(e.store("gpu", a, 0, 2))}
			}},
			resets: map[loss]float64{lossMalformed: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEngine()
			s := &scripted{engine: e, replays: test.replays}
			f := testFollower(t, s)
			for _, step := range test.steps {
				if err := f.connection(s, step(e, s)...); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			if diff := agree(f, e); diff != "" {
				t.Error(diff)
			}
			if whole := f.settled.Load() == 0; whole != test.whole {
				t.Errorf("known to be whole: %v, want %v", whole, test.whole)
			}
			for why := range loss(losses) {
				if got := testutil.ToFloat64(f.metrics.resets[why]); got != test.resets[why] {
					t.Errorf("resets for %s: %v, want %v", lossNames[why], got, test.resets[why])
				}
			}
			if got := testutil.ToFloat64(f.metrics.lost); got != test.lost {
				t.Errorf("%v lost, want %v", got, test.lost)
			}
		})
	}
}

func TestEvidenceIsWithheldUntilSettled(t *testing.T) {
	e := newEngine()
	s := &scripted{engine: e}
	f := testFollower(t, s)
	now := f.now()
	f.now = func() time.Time { return now }
	if why := f.lookup(); why != lookupDisconnected {
		t.Errorf("before connecting: %s", lookupNames[why])
	}
	e.publish()
	_ = f.connection(s, e.publish(e.store("gpu", sequenceOf(0, 0, 6), 0, 1)))
	if why := f.lookup(); why != lookupSettling {
		t.Errorf("joined in the middle: %s", lookupNames[why])
	}
	now = now.Add(f.settle)
	if why := f.lookup(); why != lookupKnown {
		t.Errorf("once settled: %s", lookupNames[why])
	}
}

func TestDisorderWithoutEndIsLeftToTheBackOff(t *testing.T) {
	e := newEngine()
	s := &scripted{engine: e}
	f := testFollower(t, s)
	m := e.publish()
	err := f.connection(s, m, message{1 << 60, batch(5)}, message{1 << 61, batch(6)}, message{1 << 62, batch(7)})
	if !errors.Is(err, errUnstable) {
		t.Errorf("got %v", err)
	}
}

// TestFollowerNeverClaimsTooMuch drives an engine and a lossy, repeating,
// reconnecting transport at random.
func TestFollowerNeverClaimsTooMuch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newEngine()
		e.steps = rapid.IntRange(0, 5).Draw(rt, "buffer")
		s := &scripted{engine: e, replays: rapid.Bool().Draw(rt, "replays"), drop: rapid.IntRange(0, 4).Draw(rt, "drop")}
		f := testFollower(t, s)
		clock := f.now()
		f.now = func() time.Time { clock = clock.Add(time.Second); return clock }
		for range rapid.IntRange(1, 8).Draw(rt, "connections") {
			live := randomTraffic(rt, e)
			// The last message is always delivered: it ends the transport's say.
			live = append(live, e.publish(randomEvents(rt, e)...))
			if err := f.connection(s, live...); !errors.Is(err, io.EOF) {
				rt.Fatal(err)
			}
			claims(rt, f, e)
		}
	})
}

func randomEvents(rt *rapid.T, e *testEngine) []testEvent {
	if event, ok := randomEvent(rt, e); ok {
		return []testEvent{event}
	}
	return nil
}

// randomTraffic is what a connection delivers of what an engine publishes.
func randomTraffic(rt *rapid.T, e *testEngine) []message {
	var live []message
	for range rapid.IntRange(0, 12).Draw(rt, "messages") {
		m := e.publish(randomEvents(rt, e)...)
		switch rapid.IntRange(0, 9).Draw(rt, "fate") {
		case 0: // lost
		case 1:
			live = append(live, m, m)
		case 2:
			if len(live) > 0 {
				last := len(live) - 1
				live = append(live[:last:last], m, live[last])
				continue
			}
			live = append(live, m)
		case 3:
			e.restart()
			live = nil // a restart ends the connection: these came too early
		default:
			live = append(live, m)
		}
	}
	return live
}

func claims(rt *rapid.T, f *follower, e *testEngine) {
	whole := f.settled.Load() == 0
	for family := range 3 {
		prompt := Prompt{Tokens: sequenceOf(family, 2, 6)}
		all, byTier := e.prefix(prompt.Tokens)
		got, _, _ := f.index.match(&chains{prompt: &prompt})
		if whole && (got.CachedBlocks != all || !maps.Equal(got.ByTier, byTier)) {
			rt.Fatalf("whole, but has %v, not %d %v", got, all, byTier)
		}
		if got.CachedBlocks > all {
			rt.Fatalf("claims %v of %d %v", got, all, byTier)
		}
		for tier, n := range got.ByTier {
			if n > byTier[tier] {
				rt.Fatalf("claims %v of %d %v", got, all, byTier)
			}
		}
	}
}

func TestSequenceTellsRepetitionFromRestart(t *testing.T) {
	var s sequence
	s.begin(10)
	for i := range uint64(memory + 20) {
		if v := s.judge(10+i, i+1); v != inOrder {
			t.Fatalf("number %d: verdict %d", 10+i, v)
		}
		s.applied(i + 1)
	}
	next := uint64(10 + memory + 20)
	for _, test := range []struct {
		name           string
		number, digest uint64
		want           verdict
	}{
		{"next", next, 1, inOrder},
		{"ahead", next + 1, 1, ahead},
		{"last", next - 1, memory + 20, repeated},
		{"as far back as is remembered", next - memory, 21, repeated},
		{"further back", next - memory - 1, 20, behind},
		{"another content", next - 1, 7, behind},
		{"before the first", 5, 0, behind},
	} {
		if got := s.judge(test.number, test.digest); got != test.want {
			t.Errorf("%s: verdict %d, want %d", test.name, got, test.want)
		}
	}
}
