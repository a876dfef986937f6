package tuner

import (
	"fmt"
	"math"
)

// erring says that requests fail, more than allowed and more than under the
// incumbent; empty if they do not.
func (g Guard) erring(s, incumbent Signals) string {
	if served := s.Requests + s.Errors; served >= minGuardRequests {
		errors := s.Errors / served
		before := incumbent.Errors / max(incumbent.Requests+incumbent.Errors, 1)
		if errors > g.MaxErrorShare && errors > before {
			return fmt.Sprintf("%.1f%% of requests failed, above %.1f%% (guard.maxErrorShare)", 100*errors, 100*g.MaxErrorShare)
		}
	}
	return ""
}

// breach says why a candidate must go at once; empty means it may stay. It is
// judged against what the incumbent delivered before the trial, on every sample
// the candidate is in force, its washout included, but for a shed's: nothing
// completes, which was not so before; or the SLO is broken, which the incumbent kept.
func (g Guard) breach(s, incumbent Signals) string {
	if s.stalled() && !incumbent.stalled() {
		return fmt.Sprintf("nothing has completed in %.0f s while %.0f requests wait", s.Seconds, s.Waiting())
	}
	if g.broken(s) && !g.broken(incumbent) && !incumbent.stalled() {
		return fmt.Sprintf("only %.1f%% of requests had a TTFT of at most %v, below %.1f%% (guard.within)", 100*s.Within(), g.TTFT, 100*g.Within)
	}
	return ""
}

// broken reports whether the SLO is known to be missed.
func (g Guard) broken(s Signals) bool {
	return g.Within > 0 && s.HasSLO && s.FirstTokens >= minGuardRequests && s.Within() < g.Within
}

// minGuardRequests is the least number of first tokens a share is judged on:
// fewer make a single slow request a breach.
const minGuardRequests = 20

// regressed reports whether a log cost lies above the incumbent's by more than
// the guard allows, noise (two standard deviations) granted.
func (g Guard) regressed(logCost, incumbent, variance float64) bool {
	return logCost > incumbent+math.Log1p(g.MaxRegression)+2*math.Sqrt(variance)
}

// collapsed reports whether the pool is drowning in restores: many requests in
// flight wait and the SLO is broken, while restores are made. Waiting for a
// restore counts as waiting in vLLM, so this is the signature of a storage
// backlog that feeds itself.
func (g Guard) collapsed(s Sample) bool {
	in := s.Signals.InFlight()
	if g.CollapseWaiting == 0 || s.Plugin.State != OK || in == 0 || s.Signals.Waiting()/in < g.CollapseWaiting {
		return false
	}
	return s.Signals.stalled() || s.Plugin.Loads > 0 && g.broken(s.Signals)
}
