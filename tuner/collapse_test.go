package tuner

import (
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// silent makes a sample one in which requests wait and nothing completes.
func silent(s *Sample) {
	s.Signals.FirstTokens, s.Signals.Requests, s.Signals.TTFTSeconds, s.Signals.E2ESeconds, s.Signals.WithinSLO, s.Signals.Prompt = 0, 0, 0, 0, 0, 0
	s.Signals.WaitingSeconds = 40 * 15
}

// A shed that helps stays, however strange its first minutes are: what waited in the
// collapse is other requests than what got through it, and is late whoever serves it.
func TestShedOutlastsWhatTheCollapseLeft(t *testing.T) {
	drowning := func(s *Sample) {
		s.Signals.WaitingSeconds, s.Signals.RunningSeconds = 40*15, 20*15
		s.Signals.WithinSLO, s.Signals.E2ESeconds = 0.3*s.Signals.FirstTokens, 6*s.Signals.E2ESeconds
	}
	for _, tc := range []struct {
		name     string
		collapse func(*Sample)
		shed     func(s *Sample, since time.Duration)
	}{
		{"long prompts had waited", drowning, func(s *Sample, _ time.Duration) { s.Signals.Prompt *= 1.6 }},
		{"nothing completes at first", drowning, func(s *Sample, since time.Duration) {
			if since < 20*time.Second {
				silent(s)
			}
		}},
		{"a wedge, and what was in it is late", silent, func(s *Sample, since time.Duration) {
			if since < 90*time.Second {
				s.Signals.WithinSLO = 0
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, flat)
			w.change = func(s *Sample, p store.Params) {
				switch {
				case w.now.Sub(noon) <= 10*time.Minute:
				case p.MinExternalReusableTokens < 16384:
					tc.collapse(s)
				case w.c.trial != nil:
					tc.shed(s, w.now.Sub(w.c.trial.since))
				}
			}
			w.run(20 * time.Minute)
			if w.count(store.KindShed) != 1 || w.baseline.MinExternalReusableTokens != store.Never {
				t.Errorf("%d sheds, and %s is in force after ten minutes of collapse; the last abort: %+v", w.count(store.KindShed), w.baseline, w.last(store.KindAbort))
			}
		})
	}
}

// A shed under which requests fail ends at once, like any candidate.
func TestShedThatFailsRequestsEnds(t *testing.T) {
	w := newWorld(t, flat)
	w.change = func(s *Sample, p store.Params) {
		switch {
		case w.now.Sub(noon) <= 10*time.Minute:
		case p.MinExternalReusableTokens < 16384:
			silent(s)
		default:
			s.Signals.Errors = s.Signals.Requests
		}
	}
	w.run(12 * time.Minute)
	if w.count(store.KindShed) != 1 || w.inForce() != testSettings().Initial {
		t.Errorf("%d sheds, %s is in force", w.count(store.KindShed), w.inForce())
	}
}
