package store

import (
	"fmt"
	"math"
	"strings"
)

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

// Names of the two thresholds wherever they are told apart by name: fields of
// documents and configuration, and values of the label of metrics.
const (
	NameTokens  = "minExternalReusableTokens"
	NameWaiting = "maxWaitingRequests"
)

const (
	fieldTokens  = NameTokens
	fieldWaiting = NameWaiting

	allowedWaiting = "a whole number: 0 for no gate, or 1 or more"
)

// String is tokens and queue limit as on the command line: "1024+8", "inf+0".
func (p Params) String() string {
	return fmt.Sprintf("%s+%d", p.MinExternalReusableTokens, p.MaxWaitingRequests)
}

// ParseParams reads what Params.String writes; errors wrap ErrInvalid.
func ParseParams(s string) (Params, error) {
	tokens, waiting, found := strings.Cut(s, "+")
	if !found {
		return Params{}, refuse("parameters", s, `<tokens>+<waiting>, such as "1024+8" or "inf+0"`)
	}
	var p Params
	if err := p.MinExternalReusableTokens.UnmarshalText([]byte(tokens)); err != nil {
		return Params{}, under(fieldTokens, err)
	}
	n, ok := parseCount(waiting)
	if !ok || n > math.MaxInt {
		return Params{}, refuse(fieldWaiting, waiting, allowedWaiting)
	}
	p.MaxWaitingRequests = int(n)
	return p, nil
}

// Validate names the field that is out of range; errors wrap ErrInvalid.
func (p Params) Validate() error {
	if err := p.MinExternalReusableTokens.Validate(); err != nil {
		return under(fieldTokens, err)
	}
	return validateWaiting(fieldWaiting, p.MaxWaitingRequests)
}

func validateWaiting(field string, n int) error {
	if n < 0 {
		return refuse(field, n, allowedWaiting)
	}
	return nil
}

// CompareWaiting orders queue limits by how much they let through: negative if
// a is stricter than b, 0 if equal, positive if looser. NoGate is the loosest.
func CompareWaiting(a, b int) int {
	switch {
	case a == b:
		return 0
	case a == NoGate:
		return 1
	case b == NoGate || a < b:
		return -1
	default:
		return 1
	}
}
