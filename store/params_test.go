package store_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

func TestTokensJSON(t *testing.T) {
	for in, want := range map[string]store.Tokens{
		`1`:                   1,
		`1024`:                1024,
		`"inf"`:               store.Never,
		`9223372036854775806`: store.Never - 1,
	} {
		var got store.Tokens
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", in, got, err, want)
		}
		out, err := json.Marshal(want)
		if err != nil || string(out) != in {
			t.Errorf("%v: got %s, %v, want %s", want, out, err, in)
		}
	}
}

func TestTokensRefused(t *testing.T) {
	bad := []string{`0`, `-1`, `1.0`, `1e3`, `"1024"`, `"Inf"`, `"never"`, `null`, `true`, `[]`, `9223372036854775807`, `9223372036854775808`}
	for _, in := range bad {
		got := store.Tokens(7)
		err := json.Unmarshal([]byte(in), &got)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `1 or more, or "inf"`) {
			t.Errorf("%s: got %v, %v, want an error that says what is allowed", in, got, err)
		}
	}
	for _, in := range append(bad, "", "+5", "007", " 5") {
		var got store.Tokens
		if err := got.UnmarshalText([]byte(in)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("text %q: got %v, %v, want ErrInvalid", in, got, err)
		}
	}
}

func TestParseParams(t *testing.T) {
	for in, want := range map[string]store.Params{
		"1024+8": {MinExternalReusableTokens: 1024, MaxWaitingRequests: 8},
		"inf+0":  {MinExternalReusableTokens: store.Never},
		"1+0":    {MinExternalReusableTokens: 1},

		"1024+8+adaptive": {MinExternalReusableTokens: 1024, MaxWaitingRequests: 8, LoadPolicy: store.Adaptive},
	} {
		got, err := store.ParseParams(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%s: got %v, %v, want %v", in, got, err, want)
		}
	}
	for in, field := range map[string]string{
		"":         "parameters",
		"1024":     "parameters",
		"0+8":      "minExternalReusableTokens",
		"-1+8":     "minExternalReusableTokens",
		"01+8":     "minExternalReusableTokens",
		"x+8":      "minExternalReusableTokens",
		"1024+":    "maxWaitingRequests",
		"1024+-1":  "maxWaitingRequests",
		"1024++1":  "maxWaitingRequests",
		"1024+inf": "maxWaitingRequests",
		"1+8+9":    "maxWaitingRequests",
	} {
		_, err := store.ParseParams(in)
		wantField(t, in, err, field)
	}
}

func TestParamsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawParams(t, "params")
		got, err := store.ParseParams(want.String())
		if err != nil || got != want {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	})
}

func TestCompareWaiting(t *testing.T) {
	fromStrict := []int{1, 2, 8, math.MaxInt, store.NoGate}
	for i, a := range fromStrict {
		for j, b := range fromStrict {
			if got, want := sign(store.CompareWaiting(a, b)), sign(i-j); got != want {
				t.Errorf("CompareWaiting(%d, %d) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	default:
		return 0
	}
}

func TestBoundsClamp(t *testing.T) {
	gated := store.Bounds{
		MinExternalReusableTokens: store.TokenRange{Min: 256, Max: 4096},
		MaxWaitingRequests:        store.WaitingRange{Min: 2, Max: 16},
	}
	for _, test := range []struct {
		bounds   store.Bounds
		in, want string
	}{
		{gated, "1024+8", "1024+8"},
		{gated, "1+1", "256+2"},
		{gated, "inf+0", "4096+16"},
		{gated, "4096+16", "4096+16"},
		{store.DefaultBounds(), "inf+0", "inf+0"},
		{store.DefaultBounds(), "1+1", "1+1"},
	} {
		in, want := parseParams(t, test.in), parseParams(t, test.want)
		got, moved := test.bounds.Clamp(in)
		if got != want || moved != (in != want) {
			t.Errorf("clamp %v: got %v, %t, want %v", in, got, moved, want)
		}
		if test.bounds.Contains(in) == moved {
			t.Errorf("contains %v = %t, but clamp moved it: %t", in, !moved, moved)
		}
	}
	if store.DefaultBounds().Contains(store.Params{}) {
		t.Error("bounds contain the zero Params, which are not valid")
	}
}

func TestClampLandsInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawParams(t, "a"), drawParams(t, "b")
		bounds := store.Bounds{
			MinExternalReusableTokens: store.TokenRange{
				Min: min(a.MinExternalReusableTokens, b.MinExternalReusableTokens),
				Max: max(a.MinExternalReusableTokens, b.MinExternalReusableTokens),
			},
			MaxWaitingRequests: store.WaitingRange{Min: a.MaxWaitingRequests, Max: b.MaxWaitingRequests},
		}
		if store.CompareWaiting(a.MaxWaitingRequests, b.MaxWaitingRequests) > 0 {
			bounds.MaxWaitingRequests = store.WaitingRange{Min: b.MaxWaitingRequests, Max: a.MaxWaitingRequests}
		}
		if err := bounds.Validate(); err != nil {
			t.Fatalf("bounds %+v: %v", bounds, err)
		}
		p := drawParams(t, "p")
		clamped, moved := bounds.Clamp(p)
		if !bounds.Contains(clamped) || moved == bounds.Contains(p) {
			t.Fatalf("clamp %v to %+v: got %v, moved %t", p, bounds, clamped, moved)
		}
	})
}

func TestBoundsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*store.Bounds)
		field  string
	}{
		"token minimum 0":    {func(b *store.Bounds) { b.MinExternalReusableTokens.Min = 0 }, "minExternalReusableTokens.min"},
		"token maximum 0":    {func(b *store.Bounds) { b.MinExternalReusableTokens.Max = 0 }, "minExternalReusableTokens.max"},
		"tokens crossed":     {func(b *store.Bounds) { b.MinExternalReusableTokens = store.TokenRange{Min: 8, Max: 4} }, "minExternalReusableTokens.min"},
		"waiting negative":   {func(b *store.Bounds) { b.MaxWaitingRequests.Min = -1 }, "maxWaitingRequests.min"},
		"waiting max below":  {func(b *store.Bounds) { b.MaxWaitingRequests.Max = -1 }, "maxWaitingRequests.max"},
		"waiting crossed":    {func(b *store.Bounds) { b.MaxWaitingRequests = store.WaitingRange{Min: 8, Max: 4} }, "maxWaitingRequests.min"},
		"no gate as minimum": {func(b *store.Bounds) { b.MaxWaitingRequests = store.WaitingRange{Min: 0, Max: 4} }, "maxWaitingRequests.min"},
	} {
		t.Run(name, func(t *testing.T) {
			b := store.DefaultBounds()
			if err := b.Validate(); err != nil {
				t.Fatalf("default bounds: %v", err)
			}
			test.change(&b)
			wantField(t, name, b.Validate(), test.field)
		})
	}
}

func wantField(t *testing.T, what string, err error, field string) {
	t.Helper()
	var fe *store.FieldError
	if !errors.As(err, &fe) || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%s: got %v, want a FieldError of %q that wraps ErrInvalid", what, err, field)
		return
	}
	if diff := cmp.Diff(field, fe.Field); diff != "" {
		t.Errorf("%s: field of %v (-want +got):\n%s", what, err, diff)
	}
}

func parseParams(t *testing.T, s string) store.Params {
	t.Helper()
	p, err := store.ParseParams(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drawParams(t *rapid.T, label string) store.Params {
	return store.Params{
		MinExternalReusableTokens: rapid.OneOf(
			rapid.Just(store.Never),
			rapid.Custom(func(t *rapid.T) store.Tokens {
				return store.Tokens(rapid.Int64Range(1, math.MaxInt64).Draw(t, "tokens"))
			}),
		).Draw(t, label),
		MaxWaitingRequests: rapid.IntRange(0, math.MaxInt).Draw(t, label+" waiting"),
		LoadPolicy:         rapid.SampledFrom([]store.LoadPolicy{store.Threshold, store.Adaptive}).Draw(t, label+" policy"),
	}
}
