package lab

import (
	"errors"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/store"
)

// climber is the obvious tuner, to compare with: it looks at the mean end-to-end
// time of each minute and takes one step on a ladder, onwards while that fell,
// back and in another direction when it rose. It knows no noise, no model and no
// trial.
type climber struct {
	tokens, waiting int // rungs
	direction       int
	last            float64
	seconds         int // of the phase, judged so far
	revision        int64
}

const climbWindow = 60

var (
	climbTokens  = []store.Tokens{1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, store.Never}
	climbWaiting = []int{1, 2, 4, 8, 16, 32, 64, store.NoGate}
	climbSteps   = [][2]int{{1, 0}, {0, 1}, {-1, 0}, {0, -1}}
)

// newClimber stands on 1024+8.
func newClimber() *climber { return &climber{tokens: 5, waiting: 3, last: math.Inf(1)} }

// step looks at a phase's seconds so far and returns the next document, nil while
// the window is not full.
func (c *climber) step(seconds []fleet.Second, now time.Time) *store.Document {
	if len(seconds) < c.seconds { // a new phase
		c.seconds = 0
	}
	if len(seconds)-c.seconds < climbWindow {
		return nil
	}
	cost, ok := meanE2E(seconds[c.seconds:])
	c.seconds = len(seconds)
	if !ok {
		return nil
	}
	if cost > c.last {
		c.walk(-1)
		c.direction = (c.direction + 1) % len(climbSteps)
	}
	c.last = cost
	c.walk(1)
	c.revision++
	return &store.Document{
		APIVersion: store.APIVersion, Pool: poolName, Revision: c.revision, UpdatedAt: now,
		Baseline: store.Params{MinExternalReusableTokens: climbTokens[c.tokens], MaxWaitingRequests: climbWaiting[c.waiting]},
	}
}

func (c *climber) walk(by int) {
	d := climbSteps[c.direction]
	c.tokens = min(max(c.tokens+by*d[0], 0), len(climbTokens)-1)
	c.waiting = min(max(c.waiting+by*d[1], 0), len(climbWaiting)-1)
}

func meanE2E(seconds []fleet.Second) (float64, bool) {
	sum, n := 0.0, 0
	for _, s := range seconds {
		sum, n = sum+s.E2E, n+s.Requests
	}
	return sum / float64(n), n > 0
}

// climb lets the plain climber take its step.
func (l *loop) climb() error {
	d := l.climber.step(l.fleet.Seconds(), l.fleet.Now())
	if d == nil {
		return nil
	}
	if err := l.policy.Apply(d); err != nil {
		return errors.Join(errors.New("plain climbing"), err)
	}
	l.outcome.Path = append(l.outcome.Path, Point{At: l.elapsed, Params: d.Baseline, Arm: store.ArmBaseline})
	return nil
}
