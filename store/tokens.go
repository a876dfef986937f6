package store

import (
	"math"
	"strconv"
	"strings"
)

// Tokens counts prompt tokens whose KV cache lies outside GPU memory.
type Tokens int64

// Never is the token minimum that no request reaches: every prefix is
// recomputed. It is written "inf" in documents and on the command line.
const Never Tokens = math.MaxInt64

const (
	infinity      = "inf"
	allowedTokens = `a whole number of 1 or more, or "inf"`
)

// String is the number, or "inf" for Never.
func (t Tokens) String() string {
	if t == Never {
		return infinity
	}
	return strconv.FormatInt(int64(t), 10)
}

// Validate accepts 1 and more, and Never.
func (t Tokens) Validate() error {
	if t < 1 {
		return refuse("", t, allowedTokens)
	}
	return nil
}

// MarshalText is String; it serves configuration and flags.
func (t Tokens) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what String writes; errors wrap ErrInvalid.
func (t *Tokens) UnmarshalText(text []byte) error {
	if string(text) == infinity {
		*t = Never
		return nil
	}
	n, ok := parseCount(string(text))
	if !ok || Tokens(n) == Never {
		return refuse("", string(text), allowedTokens)
	}
	*t = Tokens(n)
	return t.Validate()
}

// MarshalJSON writes a number, or the string "inf" for Never.
func (t Tokens) MarshalJSON() ([]byte, error) {
	if t == Never {
		return []byte(`"inf"`), nil
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalJSON reads a whole number without fraction or exponent, or the
// string "inf"; nothing else. Errors wrap ErrInvalid.
func (t *Tokens) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"inf"` {
		*t = Never
		return nil
	}
	n, ok := parseCount(string(raw))
	if !ok || Tokens(n) == Never {
		return refuse("", raw, allowedTokens)
	}
	*t = Tokens(n)
	return t.Validate()
}

// parseCount reads a decimal number in its only spelling: no sign, no leading
// zero, no fraction.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strings.HasPrefix(s, "+") || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return n, true
}
