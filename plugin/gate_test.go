package plugin

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

// sample is one step of a gate's history.
type sample struct {
	after   time.Duration
	waiting int
	closed  bool // under the limit of the test
}

func TestGateClosesAtTheLimitAndReopensAtHalf(t *testing.T) {
	slow := Gate{HalfLife: 2 * time.Second, MaxSampleAge: 10 * time.Second}
	for _, tt := range []struct {
		name    string
		gate    Gate
		limit   int
		samples []sample
	}{
		{"closes at the limit", Gate{}, 8, []sample{{0, 8, true}}},
		{"open below the limit", Gate{}, 8, []sample{{0, 7, false}}},
		{"a limit of 1", Gate{}, 1, []sample{{0, 0, false}, {0, 1, false}, {450 * time.Millisecond, 8, true}}},
		{"half-life of 2 s", slow, 8, []sample{{0, 8, true}, {time.Second, 0, true}, {time.Second, 0, false}}},
		{"just above half stays closed", slow, 8, []sample{{0, 8, true}, {1999 * time.Millisecond, 0, true}}},
		{"does not close again until the limit", slow, 8, []sample{{0, 8, true}, {2 * time.Second, 0, false}, {2 * time.Second, 11, false}, {10 * time.Second, 8, false}}},
		{"one burst does not close it", Gate{}, 8, []sample{{0, 0, false}, {50 * time.Millisecond, 100, false}}},
		{"the same time twice is one sample", Gate{}, 8, []sample{{0, 0, false}, {0, 100, false}}},
		{"an older sample is ignored", Gate{}, 8, []sample{{0, 8, true}, {-100 * time.Millisecond, 0, true}}},
		{"a silence resets it", Gate{}, 8, []sample{{0, 8, true}, {501 * time.Millisecond, 7, false}}},
		{"no gate", Gate{}, store.NoGate, []sample{{0, 1000, false}}},
		{"the largest limit", Gate{}, maxGateLimit, []sample{{0, maxGateLimit - 1, false}, {501 * time.Millisecond, math.MaxInt, true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := threshold(1, tt.limit)
			c.Gate = tt.gate
			p, clk, _ := newPolicy(t, c)
			at := clk.now()
			for i, s := range tt.samples {
				at = at.Add(s.after)
				if at.After(clk.t) {
					clk.t = at
				}
				p.Observe("a", s.waiting, at)
				if got := p.Decide(request("", "a", 1)).Reason == ReasonQueueGate; got != s.closed {
					t.Errorf("sample %d: closed is %v, want %v", i, got, s.closed)
				}
			}
		})
	}
}

// A gate closed by the last sample before a metrics outage must not stay closed.
func TestGateForgetsASampleThatIsTooOld(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1, 8))
	p.Observe("a", 50, clk.now())
	clk.advance(500 * time.Millisecond)
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonQueueGate {
		t.Errorf("at the maximum age: %v, want queue_gate", got)
	}
	clk.advance(time.Nanosecond)
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonReusable {
		t.Errorf("past the maximum age: %v, want reusable", got)
	}
}

func TestGateDoesNotVetoWithoutEvidence(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1, 8))
	p.Observe("", 50, clk.now())
	p.Observe("a", 50, time.Time{})
	p.Observe("a", -1, clk.now())
	p.Observe("a", 50, clk.now().Add(time.Second))
	for _, endpoint := range []string{"", "a", "unheard of"} {
		if got := p.Decide(request("", endpoint, 1)).Reason; got != ReasonReusable {
			t.Errorf("endpoint %q: %v, want reusable", endpoint, got)
		}
	}
	for reason, want := range map[string]float64{sampleNegative: 1, sampleFuture: 1} {
		if got := value1(t, reg, "selective_kv_samples_refused_total", "reason", reason); got != want {
			t.Errorf("%s samples refused: %v, want %v", reason, got, want)
		}
	}
}

func TestGateRecoversFromAClockSetBack(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1, 8))
	p.Observe("a", 50, clk.now())
	clk.advance(-time.Hour)
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonReusable {
		t.Errorf("with a sample of the future: %v, want reusable", got)
	}
	p.Observe("a", 8, clk.now())
	if got := p.Decide(request("", "a", 1)).Reason; got != ReasonQueueGate {
		t.Errorf("with a new sample: %v, want queue_gate", got)
	}
}

// relay is the gate of one limit, written the obvious way.
type relay struct {
	limit  int
	closed bool
}

func (r *relay) move(average float64) {
	if average >= float64(r.limit) {
		r.closed = true
	} else if average <= float64(r.limit)/2 {
		r.closed = false
	}
}

// reading is a sample since the last reset.
type reading struct {
	at      time.Duration
	waiting float64
}

// ewma is the closed form of the time-aware average: each sample weighs what its
// interval took off the weight of those before it.
func ewma(history []reading, halfLife time.Duration) float64 {
	weight := func(d time.Duration) float64 { return math.Exp2(-float64(d) / float64(halfLife)) }
	last := history[len(history)-1].at
	sum := history[0].waiting * weight(last-history[0].at)
	for i, r := range history[1:] {
		sum += r.waiting * (1 - weight(r.at-history[i].at)) * weight(last-r.at)
	}
	return sum
}

// Whatever limit is asked for, and whenever, the gate answers as if that limit
// had been in force all along.
func TestGateAnswersForEveryLimit(t *testing.T) {
	d := decay{halfLife: float64(2 * time.Second), maxAge: int64(500 * time.Millisecond)}
	rapid.Check(t, func(t *rapid.T) {
		g := &newEndpoint(false).gate
		limits := make([]relay, maxGateLimit)
		for i := range limits {
			limits[i].limit = i + 1
		}
		var history []reading
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			now += time.Duration(rapid.OneOf(rapid.IntRange(-100, 500), rapid.IntRange(501, 5000)).Draw(t, "ms")) * time.Millisecond
			waiting := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 3000)).Draw(t, "waiting")
			last := time.Duration(math.MinInt64)
			if len(history) > 0 {
				last = history[len(history)-1].at
			}
			g.observe(d, int64(max(now, last)), int64(now), float64(waiting), 1)
			if now <= last {
				now = last
				continue
			}
			if len(history) == 0 || now-last > 500*time.Millisecond {
				history = nil
				for i := range limits {
					limits[i].closed = false
				}
			}
			history = append(history, reading{now, float64(waiting)})
			if want, got := ewma(history, 2*time.Second), g.average(); math.Abs(got-want) > 1e-9*(1+want) {
				t.Fatalf("average %v, want %v", got, want)
			}
			for i := range limits {
				r := &limits[i]
				r.move(g.average())
				if got := g.closedAt(r.limit); got != r.closed {
					t.Fatalf("average %v, limit %d: closed is %v, want %v", g.average(), r.limit, got, r.closed)
				}
			}
		}
	})
}

// Two arms with different limits share one average, and a limit that comes into
// force late is judged by the whole history.
func TestGateIsRightWhenTheLimitChanges(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1, 8))
	ask := func() Reason { return p.Decide(request("", "a", 1)).Reason }
	p.Observe("a", 12, clk.now())
	for range 6 { // 12 falls to about 6: between 4 and 8, and above 8/2
		clk.advance(333 * time.Millisecond)
		p.Observe("a", 0, clk.now())
	}
	if got := ask(); got != ReasonQueueGate {
		t.Errorf("limit 8 after 12: %v, want queue_gate until 4", got)
	}
	for revision, tt := range []struct {
		limit int
		want  Reason
	}{
		{16, ReasonReusable}, {8, ReasonQueueGate}, {13, ReasonReusable}, {12, ReasonQueueGate}, {11, ReasonQueueGate}, {4, ReasonQueueGate}, {0, ReasonReusable},
	} {
		doc := document(int64(revision+1), clk.now(), store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: tt.limit})
		if err := p.Apply(doc); err != nil {
			t.Fatal(err)
		}
		if got := ask(); got != tt.want {
			t.Errorf("limit %d at an average of %.2f: %v, want %v", tt.limit, p.endpoints.get("a").gate.average(), got, tt.want)
		}
	}
}

// The average follows every update, not only the requests that are long enough
// to meet the gate.
func TestGateIsFedWhateverTheRequests(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	for range 100 {
		p.Observe("a", 9, clk.now())
		if got := p.Decide(request("", "a", 1)).Reason; got != ReasonBelowMinimum {
			t.Fatalf("64 tokens: %v, want below_minimum", got)
		}
		clk.advance(50 * time.Millisecond)
	}
	if got := p.Decide(request("", "a", 16)).Reason; got != ReasonQueueGate {
		t.Errorf("the first long request: %v, want queue_gate", got)
	}
}
