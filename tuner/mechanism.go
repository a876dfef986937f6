package tuner

import "slices"

// Mechanism is a part of the loop that can be taken out, to measure what it is
// worth. It is no setting: configuration cannot name it.
type Mechanism string

// Mechanisms.
const (
	// Curves propose candidates, weigh in trials and rule candidates out.
	Curves Mechanism = "curves"
	// Exploring tries neighbours that no evidence asked for.
	Exploring Mechanism = "exploring"
	// Memory returns to what was best when a workload was last seen.
	Memory Mechanism = "memory"
	// ChangeDetection starts the search over when the incumbent's cost leaves
	// its band.
	ChangeDetection Mechanism = "change detection"
	// Shedding stops restores at once in a collapse.
	Shedding Mechanism = "shedding"
	// Probation rolls back a move that turns out worse.
	Probation Mechanism = "probation"
	// Haste starts a sure candidate early, and stays on a likely one.
	Haste Mechanism = "haste"
	// Doubt waits longer after the curves were wrong.
	Doubt Mechanism = "doubt"
	// Caution lets restores in again under a strict gate.
	Caution Mechanism = "caution"
	// Homing goes back towards the initial thresholds after a change unless the
	// curves expect a loss.
	Homing Mechanism = "homing"
)

// Mechanisms lists them.
func Mechanisms() []Mechanism {
	return []Mechanism{Curves, Exploring, Memory, ChangeDetection, Shedding, Probation, Haste, Doubt, Caution, Homing}
}

// has tells that a mechanism was not taken out.
func (s Settings) has(m Mechanism) bool { return !slices.Contains(s.Without, m) }
