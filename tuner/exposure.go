package tuner

import "time"

// exposureWindow is the stretch over which the time that candidates run is
// bounded.
const exposureWindow = 4 * time.Hour

// exposure remembers when candidates were in force.
type exposure []stretch

type stretch struct{ from, to time.Time }

// add a stretch of a candidate in force, and forget what is long past.
func (e exposure) add(from, to time.Time) exposure {
	for len(e) > 0 && to.Sub(e[0].to) > exposureWindow {
		e = e[1:]
	}
	return append(e, stretch{from, to})
}

// share of the exposure window before now in which candidates were in force.
func (e exposure) share(now time.Time) float64 {
	oldest := now.Add(-exposureWindow)
	var sum time.Duration
	for _, s := range e {
		from := s.from
		if from.Before(oldest) {
			from = oldest
		}
		sum += max(0, s.to.Sub(from))
	}
	return sum.Seconds() / exposureWindow.Seconds()
}
