package tuner

import (
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Point is one sample of a pool's recent past.
type Point struct {
	Time time.Time `json:"time"`
	Arm  store.Arm `json:"arm"`
	// Params were in force on the whole pool, as far as its document says.
	Params store.Params `json:"params"`
	State  State        `json:"state"`
	// Cost is the objective in seconds a request, 0 if it is not known.
	Cost float64 `json:"cost,omitempty"`
}

// timelineLength bounds the points: six hours at 15 s.
const timelineLength = 6 * 60 * 4

// timeline keeps the latest points.
type timeline []Point

func (l *timeline) add(s Sample, c *controller, o Objective) {
	p := Point{Time: s.To, Arm: store.ArmBaseline, Params: c.incumbent, State: s.State}
	if t := c.trial; t != nil && t.onCandidate {
		p.Arm, p.Params = store.ArmCandidate, t.proposal.params
	}
	if cost, ok := o.Cost(s.Signals); ok && s.State == OK {
		p.Cost = cost
	}
	*l = append(*l, p)
	if len(*l) > 2*timelineLength {
		*l = slices.Clone((*l)[len(*l)-timelineLength:])
	}
}

// Timeline returns the samples since the start, of the last six hours at most,
// oldest first. It may be called from any goroutine.
func (t *Tuner) Timeline() []Point {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.timeline
	return slices.Clone(l[max(0, len(l)-timelineLength):])
}

func (t *Tuner) draw(s Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeline.add(s, t.control, t.o.Settings.Objective)
}
