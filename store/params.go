package store

import "math"

// Tokens counts prompt tokens whose KV cache lies outside GPU memory.
type Tokens int64

// Never is the token minimum that no request reaches: every prefix is
// recomputed. It is written "inf" in documents and on the command line.
const Never Tokens = math.MaxInt64

// NoGate is the queue limit that never closes the gate.
const NoGate = 0

// Params are the two thresholds kvtuner moves.
type Params struct {
	// MinExternalReusableTokens is the smallest number of tokens reusable from
	// outside GPU memory for which a restore is allowed (inclusive). At least
	// 1 (restore whatever there is); Never recomputes everything.
	MinExternalReusableTokens Tokens `json:"minExternalReusableTokens"`
	// MaxWaitingRequests is the smoothed number of requests waiting in one
	// engine at which restores stop. 0 (NoGate) never stops them; otherwise 1
	// or more, and smaller is stricter.
	MaxWaitingRequests int `json:"maxWaitingRequests"`
}

// Bounds limit Params on both ends. Waiting limits are ordered by how much they
// let through, so NoGate is the loosest and may only be the upper end.
type Bounds struct {
	MinExternalReusableTokens TokenRange   `json:"minExternalReusableTokens"`
	MaxWaitingRequests        WaitingRange `json:"maxWaitingRequests"`
}

// TokenRange is an inclusive range of token minimums.
type TokenRange struct {
	Min Tokens `json:"min"`
	Max Tokens `json:"max"`
}

// WaitingRange is an inclusive range of queue limits; Max 0 means "no gate is
// allowed, too".
type WaitingRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}
