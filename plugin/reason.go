package plugin

// Reason says why a decision came out as it did. The set is closed; each reason
// implies one action.
type Reason uint8

// Reasons.
const (
	// ReasonPreserved: the load policy is "preserve"; the client's setting
	// stands.
	ReasonPreserved Reason = iota
	// ReasonDisabled: the load policy is "disable".
	ReasonDisabled
	// ReasonReusable: enough tokens are reusable and the gate is open.
	ReasonReusable
	// ReasonBelowMinimum: fewer tokens are reusable than the minimum.
	ReasonBelowMinimum
	// ReasonQueueGate: too many requests are waiting in the engine.
	ReasonQueueGate
	// ReasonRestoreDearer: restoring would cost more than computing.
	ReasonRestoreDearer
	// ReasonNoEvidence: nothing is known of the cached prefix. The policy fails
	// open and the client's setting stands.
	ReasonNoEvidence
	// ReasonInvalidEvidence: what is said of the cached prefix is impossible.
	// The policy fails open and the client's setting stands.
	ReasonInvalidEvidence
	// ReasonProbeBelowMinimum: let through as a probe although fewer tokens are
	// reusable than the minimum.
	ReasonProbeBelowMinimum
	// ReasonProbeQueueGate: let through as a probe although the gate is closed.
	ReasonProbeQueueGate
	// ReasonProbeRestoreDearer: let through as a probe although restoring would
	// cost more than computing.
	ReasonProbeRestoreDearer

	reasons = iota
)

var reasonNames = [reasons]string{
	ReasonPreserved:          "preserved",
	ReasonDisabled:           "disabled",
	ReasonReusable:           "reusable",
	ReasonBelowMinimum:       "below_minimum",
	ReasonQueueGate:          "queue_gate",
	ReasonRestoreDearer:      "restore_dearer",
	ReasonNoEvidence:         "no_evidence",
	ReasonInvalidEvidence:    "invalid_evidence",
	ReasonProbeBelowMinimum:  "probe_below_minimum",
	ReasonProbeQueueGate:     "probe_queue_gate",
	ReasonProbeRestoreDearer: "probe_restore_dearer",
}

// String is the value of the reason label, such as "below_minimum".
func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return "unknown"
	}
	return reasonNames[r]
}

// Action is what the reason implies.
func (r Reason) Action() Action {
	switch r {
	case ReasonDisabled, ReasonBelowMinimum, ReasonQueueGate, ReasonRestoreDearer:
		return Recompute
	default:
		return Load
	}
}

// Probe says whether the request was let through as a probe.
func (r Reason) Probe() bool {
	return r == ReasonProbeBelowMinimum || r == ReasonProbeQueueGate || r == ReasonProbeRestoreDearer
}

// keepsClient says whether the client's own max_load_tokens stands.
func (r Reason) keepsClient() bool {
	return r == ReasonPreserved || r == ReasonNoEvidence || r == ReasonInvalidEvidence
}
