package store

import (
	"fmt"
	"math"
	"strings"
)

// NoGate is the queue limit that never closes the gate.
const NoGate = 0

// LoadPolicy says what decides about the restores that the thresholds allow.
type LoadPolicy string

const (
	// Threshold restores whatever the thresholds allow. It is the zero value and
	// is left out of documents, so that readers that know no other policy read
	// them.
	Threshold LoadPolicy = ""
	// Adaptive restores, of that, what costs less than computing it: the
	// thresholds are hard limits, and within them Document.Costs decide. While
	// those are absent or old it is Threshold.
	Adaptive LoadPolicy = "adaptive"
)

// String is the name: "threshold" or "adaptive".
func (l LoadPolicy) String() string {
	if l == Threshold {
		return "threshold"
	}
	return string(l)
}

// Params are the two thresholds kvtuner moves, and what decides within them.
type Params struct {
	// MinExternalReusableTokens is the smallest number of tokens reusable from
	// outside GPU memory for which a restore is allowed (inclusive). At least
	// 1 (restore whatever there is); Never recomputes everything.
	MinExternalReusableTokens Tokens `json:"minExternalReusableTokens"`
	// MaxWaitingRequests is the smoothed number of requests waiting in one
	// engine at which restores stop. 0 (NoGate) never stops them; otherwise 1
	// or more, and smaller is stricter.
	MaxWaitingRequests int `json:"maxWaitingRequests"`
	// LoadPolicy is Threshold or Adaptive.
	LoadPolicy LoadPolicy `json:"loadPolicy,omitempty"`
}

// Names of the parameters wherever they are told apart by name: fields of
// documents and configuration, and values of the label of metrics.
const (
	NameTokens     = "minExternalReusableTokens"
	NameWaiting    = "maxWaitingRequests"
	NameLoadPolicy = "loadPolicy"
)

const (
	fieldTokens  = NameTokens
	fieldWaiting = NameWaiting
	fieldPolicy  = NameLoadPolicy

	allowedWaiting = "a whole number: 0 for no gate, or 1 or more"
	allowedPolicy  = `"threshold" or "adaptive"`

	adaptiveSuffix = "+" + string(Adaptive)
)

// String is tokens and queue limit as on the command line, and the policy unless
// it is Threshold: "1024+8", "inf+0", "1024+8+adaptive".
func (p Params) String() string {
	s := fmt.Sprintf("%s+%d", p.MinExternalReusableTokens, p.MaxWaitingRequests)
	if p.LoadPolicy != Threshold {
		s += "+" + string(p.LoadPolicy)
	}
	return s
}

// ParseParams reads what Params.String writes; errors wrap ErrInvalid.
func ParseParams(s string) (Params, error) {
	pair, adaptive := strings.CutSuffix(s, adaptiveSuffix)
	tokens, waiting, found := strings.Cut(pair, "+")
	if !found {
		return Params{}, refuse("parameters", s, `<tokens>+<waiting>, such as "1024+8" or "inf+0", or with +adaptive after it`)
	}
	var p Params
	if adaptive {
		p.LoadPolicy = Adaptive
	}
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
	if p.LoadPolicy != Threshold && p.LoadPolicy != Adaptive {
		return refuse(fieldPolicy, string(p.LoadPolicy), allowedPolicy)
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
