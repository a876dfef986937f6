package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

var fixtureTime = time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC)

var fixtureRestore, fixtureSpread = 3.9, 0.48

func fixtureNow() time.Time { return fixtureTime }

var (
	fixtureBaseline  = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	fixtureCandidate = store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: store.NoGate}
)

// fixtureDecisions are what one pool decided in an afternoon, and another whose
// Prometheus answers with terminal escapes.
func fixtureDecisions() []store.Decision {
	at := func(minutes int) time.Time { return fixtureTime.Add(time.Duration(minutes-60) * time.Minute) }
	adopt := store.Decision{
		ID: store.NewID(at(0), 1), Pool: "qwen", Time: at(0), Kind: store.KindAdopt, Mode: store.ModeEnforce, Revision: 1,
		From: fixtureBaseline, To: fixtureBaseline, Reason: "no document existed: starting from the initial 1024+8",
	}
	move := store.Decision{
		ID: store.NewID(at(30), 2), Pool: "qwen", Time: at(30), Kind: store.KindMove, Mode: store.ModeEnforce, Revision: 9, Trial: "t-0001",
		From: fixtureBaseline, To: fixtureCandidate,
		Reason:   "inf+0 replaces 1024+8: cost of a request -11.0% (95% confidence: -14.2% to -7.8%) over 4 block(s)",
		Evidence: fixtureEvidence(at(12)),
	}
	hold := store.Decision{
		ID: store.NewID(at(45), 1), Pool: "llama", Time: at(45), Kind: store.KindHold, Mode: store.ModeObserve,
		From: fixtureBaseline, To: fixtureBaseline, Reason: "data is missing: asking Prometheus: \x1b[31mred\x1b[0m\ttext\r\n<html>",
		Evidence: &store.Evidence{
			Samples: []store.Sample{{Time: at(45), Arm: store.ArmBaseline, State: store.StateUnknown, Why: "asking Prometheus: \x1b]0;title\a"}},
			Queries: []string{`{__name__=~"vllm:a|vllm:b",job="two  spaces"}[105s]`},
		},
	}
	return []store.Decision{adopt, move, hold}
}

// fixtureEvidence is a trial of 72 samples in blocks of six, ABBA, with an idle
// and two unknown ones, and nothing known of the candidate's restores.
func fixtureEvidence(start time.Time) *store.Evidence {
	e := &store.Evidence{
		Verdict: "better",
		Effect:  &store.Interval{Estimate: -0.11, Low: -0.142, High: -0.078, Confidence: 0.95, N: 4},
		Arms: []store.ArmSummary{
			{Arm: store.ArmBaseline, Params: fixtureBaseline, Samples: 33, Requests: 2410, Signals: map[string]float64{
				"costSeconds": 2.123, "e2eMeanSeconds": 2.9, "withinSLO": 0.912, "restoreSecondsPerRequest": 0.0421, "zeta": 1e-7}},
			{Arm: store.ArmCandidate, Params: fixtureCandidate, Samples: 36, Requests: 12345.6, Signals: map[string]float64{
				"costSeconds": 1.889, "e2eMeanSeconds": 2.61, "withinSLO": 0.97}},
		},
		Curves: []store.CurveBucket{
			{Reusable: 1024, Tokens: 1200, Requests: 40, RecomputeSeconds: 0.31},
			{Reusable: 8192, Tokens: 8192, Requests: 77, RecomputeSeconds: 2.1, RestoreSeconds: &fixtureRestore, StandardError: &fixtureSpread},
		},
		Alternatives: []store.Alternative{
			{Params: fixtureCandidate, Why: "recomputing is cheaper at every length seen"},
			{Params: store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 4}, Why: "two rungs up"},
		},
		Queries: []string{`{__name__=~"vllm:e2e_request_latency_seconds_sum",namespace="llm"}[105s]`, `{pool="qwen"}[105s]`},
	}
	for n := range 72 {
		e.Samples = append(e.Samples, fixtureSample(n, start))
	}
	return e
}

func fixtureSample(n int, start time.Time) store.Sample {
	s := store.Sample{Time: start.Add(time.Duration(n) * 15 * time.Second), Arm: store.ArmBaseline, State: store.StateOK}
	level := 2.1
	if block := n / 6 % 4; block == 1 || block == 2 {
		s.Arm, level = store.ArmCandidate, 1.9
	}
	switch n {
	case 3:
		s.State = store.StateIdle
	case 4, 65:
		s.State, s.Why = store.StateUnknown, "engine pod-3 has sent nothing since 15:13:00"
	default:
		s.Signals = map[string]float64{"costSeconds": level + 0.2*math.Sin(float64(n)), "waiting": float64(n % 7)}
	}
	return s
}

func seedHistory(path string) (*store.History, error) {
	h, err := store.OpenHistory(store.HistoryOptions{Path: path, Now: fixtureNow})
	if err != nil {
		return nil, err
	}
	for _, d := range fixtureDecisions() {
		if err := h.Append(d); err != nil {
			return nil, fmt.Errorf("seeding the history: %w", err)
		}
	}
	return h, nil
}

// fixturePool is a loop at a standstill.
type fixturePool tuner.Status

func (p fixturePool) Status() tuner.Status { return tuner.Status(p) }

func (fixturePool) Timeline() []tuner.Point { return nil }

// Obey echoes the command; a resume is refused, and a pause of llama cannot be
// written yet.
func (p fixturePool) Obey(_ context.Context, now time.Time, o tuner.Command) (tuner.Receipt, error) {
	if o.Verb == tuner.Resume {
		return tuner.Receipt{}, fmt.Errorf("%w: pool %s is not paused", tuner.ErrRefused, p.Pool)
	}
	r := tuner.Receipt{Decision: store.Decision{
		ID: store.NewID(now, 3), Pool: p.Pool, Time: now, Kind: store.Kind(o.Verb), Mode: store.ModeEnforce, Actor: o.Actor,
		From: fixtureBaseline, To: fixtureBaseline,
		Reason: fmt.Sprintf("%s by %s for %s to %q %s %s, proposal %q (%q)", o.Verb, o.Actor, o.For, o.Target, o.Record, o.Params, o.Proposal, o.Reason),
	}}
	if p.Pool == "llama" {
		r.Pending = "disk full"
	}
	return r, nil
}

func fixturePools() []web.Pool {
	d := fixtureDecisions()
	d[1].Evidence = nil
	return []web.Pool{
		fixturePool{
			Pool: "qwen", Mode: tuner.Enforce, At: fixtureTime, Ready: true, Doing: "trial: comparing 2048+4 with inf+0",
			Incumbent: &fixtureCandidate, Revision: 12, LastState: tuner.OK,
			Trial: &tuner.TrialStatus{
				ID: "t-0002", Candidate: store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 4}, Why: "two rungs up",
				Arm: store.ArmBaseline, Blocks: 2, Effect: &store.Interval{Estimate: 0.01, Low: -0.05, High: 0.07, Confidence: 0.98, N: 2},
			},
			Proposal:  &tuner.ProposalStatus{ID: "p-0003", Candidate: fixtureBaseline, Why: "back to where it began", Until: fixtureTime.Add(time.Hour)},
			Recent:    map[string]float64{"costSeconds": 1.889, "withinSLO": 0.97, "inFlight": 61.25, "requests": 812},
			Decisions: []store.Decision{d[1], d[0]},
		},
		fixturePool{
			Pool: "llama", Mode: tuner.Observe, At: fixtureTime, Doing: "waiting to take over the pool",
			Error: "loading the parameter document: open /data/llama.json: permission denied",
		},
	}
}
