package report

import (
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

var (
	start    = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)
	initial  = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	strict   = store.Params{MinExternalReusableTokens: 8192, MaxWaitingRequests: 2}
	never    = store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: 2}
	hostile  = `<script>alert("1")</script> & more`
	phaseEnd = 10 * time.Minute
)

// made is a story that no simulation is needed for: the tuner tries a stricter
// pair in the second phase, moves, tries never restoring, and gives that up.
func made() Story {
	s := Story{
		Title: "A story", Intro: "What happens.", Seed: 3,
		Phases: []Phase{
			{Name: "8k-c32", Note: "As published.", Duration: phaseEnd},
			{Name: "8k-c32-slow-storage", Note: "Storage turns slow.", Strained: true, Duration: phaseEnd},
		},
		Tuned:     Run{"tuned", outcome(2, 0.5)},
		Reference: Run{"static:1024+8", outcome(3, 1.5)},
		Others:    []Run{{"load", outcome(12, 40)}},
	}
	s.Tuned.Outcome.Path = []lab.Point{
		{Params: initial, Arm: store.ArmBaseline},
		{At: 11 * time.Minute, Params: strict, Arm: store.ArmCandidate},
		{At: 13 * time.Minute, Params: initial, Arm: store.ArmBaseline},
		{At: 14 * time.Minute, Params: strict, Arm: store.ArmBaseline},
		{At: 18 * time.Minute, Params: never, Arm: store.ArmCandidate},
		{At: 19 * time.Minute, Params: strict, Arm: store.ArmBaseline},
	}
	s.Reference.Outcome.Path = []lab.Point{{Params: initial, Arm: store.ArmBaseline}}
	s.Tuned.Outcome.Decisions = []store.Decision{
		{Time: start.Add(15 * time.Second), Kind: store.KindAdopt, To: initial, Reason: "starting"},
		{Time: start.Add(11 * time.Minute), Kind: store.KindTrial, From: initial, To: strict, Reason: hostile,
			Evidence: &store.Evidence{Alternatives: []store.Alternative{{Params: never, Why: "predicted to gain less"}}}},
		{Time: start.Add(14 * time.Minute), Kind: store.KindMove, From: initial, To: strict, Reason: "it is better"},
		{Time: start.Add(18 * time.Minute), Kind: store.KindTrial, From: strict, To: never, Reason: "exploring"},
		{Time: start.Add(19 * time.Minute), Kind: store.KindAbort, From: strict, To: strict, Reason: "guard"},
	}
	return s
}

// outcome completes ten requests a second, nothing in the last minute, at a TTFT
// that rises from the first phase to the second.
func outcome(e2e, slowTTFT float64) lab.Outcome {
	o := lab.Outcome{Start: start, Stats: fleet.Stats{
		Duration: 2 * phaseEnd, Requests: 12000, RequestsPerSecond: 10, TTFTMean: (0.3 + slowTTFT) / 2, TTFTP99: 4 * slowTTFT, E2EMean: e2e,
	}}
	for i, ttft := range []float64{0.3, slowTTFT} {
		o.Phases = append(o.Phases, lab.PhaseOutcome{Stats: fleet.Stats{
			Duration: phaseEnd, Requests: 6000, RequestsPerSecond: 10, TTFTMean: ttft, TTFTP99: 4 * ttft, E2EMean: e2e,
		}})
		for second := range int(phaseEnd / time.Second) {
			var s fleet.Second
			if i == 0 || second < 540 {
				s = fleet.Second{Requests: 10, TTFT: 10 * ttft, E2E: 10 * e2e}
			}
			o.Seconds = append(o.Seconds, s)
		}
	}
	return o
}
