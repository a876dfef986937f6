package store

import "time"

// Decision is the one record of something the tuner decided about a pool. The
// log, the history, the status API and `kvtuner explain` all show this record.
type Decision struct {
	// ID is unique within a pool and sorts by time.
	ID   string    `json:"id"`
	Pool string    `json:"pool"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Mode is "observe" (nothing was published), "propose" (a candidate was
	// published only after an approval) or "enforce".
	Mode string `json:"mode"`
	// Actor is who commanded it; empty if the tuner decided by itself.
	Actor string `json:"actor,omitempty"`
	// Revision of the document this decision wrote; 0 if it wrote none.
	Revision int64  `json:"revision,omitempty"`
	Trial    string `json:"trial,omitempty"`
	// From is the incumbent before the decision, To the parameters it chose.
	From Params `json:"from"`
	To   Params `json:"to"`
	// Reason is one sentence for an on-call engineer, with the numbers in it.
	Reason   string    `json:"reason"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Kind says what a decision did.
type Kind string

// Kinds of decision, in the order a pool usually sees them.
const (
	KindAdopt     Kind = "adopt"     // took over the parameters found at start
	KindSuggest   Kind = "suggest"   // observe mode: what would be tried
	KindPropose   Kind = "propose"   // propose mode: what waits for an approval
	KindApprove   Kind = "approve"   // someone allowed the proposed trial
	KindReject    Kind = "reject"    // someone refused it, or nobody answered in time
	KindTrial     Kind = "trial"     // started trying a candidate
	KindMove      Kind = "move"      // the candidate was better: it is the incumbent
	KindKeep      Kind = "keep"      // worse or no detectable difference: incumbent stays
	KindAbort     Kind = "abort"     // guard or missing data ended a trial
	KindShed      Kind = "shed"      // collapse: started trying to stop restores, at once
	KindRecover   Kind = "recover"   // back towards the initial parameters: no worse is enough
	KindRest      Kind = "rest"      // search settled
	KindWake      Kind = "wake"      // a change was detected: search again
	KindHold      Kind = "hold"      // tuning suspended: no data, outside schedule, no effect
	KindPause     Kind = "pause"     // someone suspended tuning
	KindResume    Kind = "resume"    // what the hold was for, or the pause, is over
	KindRevert    Kind = "revert"    // someone went back to earlier parameters
	KindDrift     Kind = "drift"     // someone else wrote the document
	KindRollback  Kind = "rollback"  // back to the last known good after a move
	KindReconcile Kind = "reconcile" // a trial left by an earlier tuner was ended
)

// Evidence is what a decision rests on.
type Evidence struct {
	Verdict string `json:"verdict,omitempty"`
	// Effect is the candidate's relative cost change: -0.10 is 10% better.
	Effect *Interval `json:"effect,omitempty"`
	// Arms summarises each side.
	Arms []ArmSummary `json:"arms,omitempty"`
	// Curves are what restoring and recomputing cost, by reusable tokens, when
	// the decision was taken.
	Curves []CurveBucket `json:"curves,omitempty"`
	// Alternatives are the other candidates considered.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Samples are the observations, oldest first.
	Samples []Sample `json:"samples,omitempty"`
	// Queries as sent to Prometheus.
	Queries []string `json:"queries,omitempty"`
}

// Interval is an estimate with a confidence interval.
type Interval struct {
	Estimate   float64 `json:"estimate"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	// N is the number of independent comparisons (blocks) behind it.
	N int `json:"n"`
}

// ArmSummary is one arm of a comparison, over its judged samples.
type ArmSummary struct {
	Arm      Arm     `json:"arm"`
	Params   Params  `json:"params"`
	Samples  int     `json:"samples"`
	Requests float64 `json:"requests"`
	// Signals by name, in the units of the tuner's signals.
	Signals map[string]float64 `json:"signals"`
}

// CurveBucket compares both actions for the requests whose externally reusable
// tokens lie between one power of two and the next.
type CurveBucket struct {
	// Reusable is the lower end of the bucket, in tokens; Tokens their mean.
	Reusable float64 `json:"reusable"`
	Tokens   float64 `json:"tokens"`
	// Requests seen, whichever action they got.
	Requests float64 `json:"requests"`
	// RecomputeSeconds is what computing the tokens costs all requests together;
	// RestoreSeconds what restoring adds to a request's TTFT, nil if no restores
	// were seen, and StandardError its standard error.
	RecomputeSeconds float64  `json:"recomputeSeconds"`
	RestoreSeconds   *float64 `json:"restoreSeconds,omitempty"`
	StandardError    *float64 `json:"standardError,omitempty"`
}

// Alternative is a candidate that was considered.
type Alternative struct {
	Params Params `json:"params"`
	Why    string `json:"why"`
}

// Sample is one observation of a pool.
type Sample struct {
	Time time.Time `json:"time"`
	Arm  Arm       `json:"arm"`
	// State is "ok", "idle" or "unknown"; signals are present only for "ok".
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// Signals by name, in the units of the tuner's signals.
	Signals map[string]float64 `json:"signals,omitempty"`
}
