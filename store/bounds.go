package store

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

// DefaultBounds allow every valid Params: 1 to inf tokens, and a queue limit of
// 1 up to no gate.
func DefaultBounds() Bounds {
	return Bounds{
		MinExternalReusableTokens: TokenRange{Min: 1, Max: Never},
		MaxWaitingRequests:        WaitingRange{Min: 1, Max: NoGate},
	}
}

// Validate refuses ends out of range and ranges that hold nothing; errors wrap
// ErrInvalid.
func (b Bounds) Validate() error {
	if err := b.MinExternalReusableTokens.validate(); err != nil {
		return under(fieldTokens, err)
	}
	return under(fieldWaiting, b.MaxWaitingRequests.validate())
}

func (r TokenRange) validate() error {
	if err := r.Min.Validate(); err != nil {
		return under("min", err)
	}
	if err := r.Max.Validate(); err != nil {
		return under("max", err)
	}
	if r.Min > r.Max {
		return refuse("min", r.Min, "at most max, which is "+r.Max.String())
	}
	return nil
}

func (r WaitingRange) validate() error {
	if err := validateWaiting("min", r.Min); err != nil {
		return err
	}
	if err := validateWaiting("max", r.Max); err != nil {
		return err
	}
	if CompareWaiting(r.Min, r.Max) > 0 {
		return refuse("min", r.Min, "a limit no looser than max, which is "+show(r.Max)+" (0 is no gate, the loosest)")
	}
	return nil
}

// Contains says whether p is valid and within the bounds.
func (b Bounds) Contains(p Params) bool {
	_, moved := b.Clamp(p)
	return !moved && p.Validate() == nil
}

// Clamp returns the nearest Params within valid bounds, and whether that
// differs from p.
func (b Bounds) Clamp(p Params) (clamped Params, moved bool) {
	clamped = p
	clamped.MinExternalReusableTokens = min(max(p.MinExternalReusableTokens, b.MinExternalReusableTokens.Min), b.MinExternalReusableTokens.Max)
	clamped.MaxWaitingRequests = b.MaxWaitingRequests.clamp(p.MaxWaitingRequests)
	return clamped, clamped != p
}

func (r WaitingRange) clamp(n int) int {
	switch {
	case CompareWaiting(n, r.Min) < 0:
		return r.Min
	case CompareWaiting(n, r.Max) > 0:
		return r.Max
	default:
		return n
	}
}
