package tuner

import (
	"sort"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// climber is the hill climber's state: the step in rungs, the direction that
// last succeeded, and the candidates that failed against the incumbent.
type climber struct {
	Step  int                     `json:"step"`
	Last  *direction              `json:"last,omitempty"`
	Tried map[store.Params]failed `json:"-"`
	// ExploreAt is when the next trial that no evidence asked for may start.
	ExploreAt time.Time `json:"exploreAt"`
	// Known are the prompts for which all this was learned, nil until seen.
	Known *prompts `json:"known,omitempty"`
	// Unproven: the requests are not those for which the incumbent was found better
	// than the initial parameters.
	Unproven bool `json:"unproven,omitempty"`
	// Resting: every neighbour was tried or is pointless, until ExploreAt.
	Resting bool `json:"resting"`
}

// failed remembers a candidate that did not win, and until when it is not worth
// another trial.
type failed struct {
	times   int
	until   time.Time
	aborted bool
	// predicted gain that it failed to show, and whether by restoring more or
	// less; 0 and neither for a candidate that the curves did not propose.
	predicted float64
	sense     sense
}

// sense of a step: towards more restores or fewer.
type sense int

const (
	fewerRestores sense = -1
	moreRestores  sense = 1
)

func (d direction) sense() sense {
	if (d.Dim != queueLimit) == (d.By > 0) {
		return fewerRestores
	}
	return moreRestores
}

// doubted tells that the curves were wrong lately: a candidate that they proposed
// in the same sense has failed on a prediction no smaller. Neighbours promise
// much the same, and each trial of one is evidence about all.
func (c *climber) doubted(d direction, now time.Time, gain float64) bool {
	for tried, f := range c.Tried {
		if f.sense == d.sense() && c.failedOnLess(tried, now, gain) {
			return true
		}
	}
	return false
}

// directions to try at the present step, the one that last succeeded first. Back to
// the thresholds alone comes last: where weighing spares a storage, its curves no
// longer show from what.
func (c *climber) directions() []direction {
	all := []direction{
		{loadPolicy, 1}, {tokenMinimum, c.Step}, {tokenMinimum, -c.Step}, {queueLimit, -c.Step}, {queueLimit, c.Step}, {loadPolicy, -1},
	}
	if c.Last == nil {
		return all
	}
	sort.SliceStable(all, func(i, j int) bool { return c.Last.along(all[i]) && !c.Last.along(all[j]) })
	return all
}

// along reports whether both point the same way.
func (d direction) along(o direction) bool { return d.Dim == o.Dim && (d.By > 0) == (o.By > 0) }

// failedOnLess is like failedRecently, unless the gain now predicted is well above
// the one that the candidate failed to show: then things have changed.
func (c *climber) failedOnLess(p store.Params, now time.Time, gain float64) bool {
	f := c.Tried[p]
	return c.failedRecently(p, now) && (f.aborted || gain < 1.5*f.predicted+0.01)
}

func (c *climber) failedRecently(p store.Params, now time.Time) bool {
	f, ok := c.Tried[p]
	return ok && now.Before(f.until)
}

// succeeded follows a move: keep walking that way, with a longer step.
func (c *climber) succeeded(p proposal, s Search, now time.Time) {
	clear(c.Tried)
	c.Resting, c.ExploreAt, c.Known, c.Unproven = false, now, nil, false
	if p.origin == fromClimb {
		d := p.direction
		c.Last = &d
		c.Step = min(2*c.Step, s.MaxStep)
	}
}

// rejected follows a candidate that did not win. A neighbour is not tried again
// before all others were; what evidence proposed, after a wait that doubles.
// Where the curves were wrong, it is twice doubled with each failure in the same
// sense: the same curves go on promising the same.
func (c *climber) rejected(p proposal, s Search, now time.Time, abort bool) {
	f := c.Tried[p.params]
	f.times++
	f.aborted, f.predicted, f.sense = abort, p.predicted, 0
	switch p.origin {
	case fromClimb:
		f.until = now.Add(s.MaxExplore)
		c.ExploreAt = now.Add(s.Explore)
	case fromModel, fromHome:
		f.sense = p.direction.sense()
		f.times = 1 + c.failures(f.sense)
		f.until = now.Add(backOff(s.Explore, s.MaxExplore, 2*f.times-1))
	default:
		f.until = now.Add(backOff(s.Explore, s.MaxExplore, f.times))
	}
	c.Tried[p.params] = f
	c.Unproven = c.Unproven && p.origin != fromHome
}

// failures of what the curves proposed in one sense, since the last success.
func (c *climber) failures(in sense) int {
	most := 0
	for _, f := range c.Tried {
		if f.sense == in {
			most = max(most, f.times)
		}
	}
	return most
}

// wake forgets what may no longer be true after a change. What the guard had to
// stop stays stopped for its time.
func (c *climber) wake(s Search, now time.Time) {
	tried := c.Tried
	*c = newClimber(s, now)
	for p, f := range tried {
		if f.aborted && now.Before(f.until) {
			c.Tried[p] = f
		}
	}
}

func newClimber(s Search, now time.Time) climber {
	return climber{Step: s.Step, Tried: map[store.Params]failed{}, ExploreAt: now.Add(s.Explore)}
}

// backOff doubles a wait with each further time, up to a limit.
func backOff(first, limit time.Duration, times int) time.Duration {
	for ; times > 1 && first < limit; times-- {
		first *= 2
	}
	return min(first, limit)
}

func abs(i int) int { return max(i, -i) }
