// Package bench compares policies on the simulated fleet: scenarios, or a
// schedule of them, under each policy and over several seeds, with the best
// fixed pair of thresholds in hindsight as a reference.
//
// It knows only the outcomes of lab runs, never the tuner behind them. The same
// Options give the same Result to the byte, however many runs go on at a time.
package bench
