// Package results measures what the tuner is worth on the simulated fleet, and
// writes the page that says so: against fixed thresholds, hindsight and plain
// climbing, over a schedule it was developed on and two it was not; what each of
// its mechanisms adds; and what it does to a fleet that needs nothing.
//
// Everything is deterministic: the same Options give the same page. It must not
// know how the tuner works, only how to run it and which parts can be taken out.
package results
