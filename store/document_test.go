package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

const example = `{
  "apiVersion": "kvtuner/v1alpha1",
  "pool": "qwen3-32b",
  "revision": 42,
  "updatedAt": "2026-11-30T16:11:51Z",
  "baseline": {
    "minExternalReusableTokens": 1024,
    "maxWaitingRequests": 8
  },
  "trial": {
    "id": "20261130T161151Z-0007",
    "candidate": {
      "minExternalReusableTokens": "inf",
      "maxWaitingRequests": 0
    },
    "assignment": {
      "mode": "subset",
      "share": 0.5,
      "seed": 7,
      "swapped": true
    },
    "startedAt": "2026-11-30T16:11:51Z",
    "expiresAt": "2026-11-30T16:21:51Z"
  }
}
`

// exampleCosts are the example's with costs that its candidate goes by.
var exampleCosts = strings.Replace(strings.Replace(example, `"maxWaitingRequests": 0
    },`, `"maxWaitingRequests": 0,
      "loadPolicy": "adaptive"
    },`, 1), `
  }
}
`, `
  },
`+exampleCostsOnly+`}
`, 1)

const exampleCostsOnly = `  "costs": {
    "fittedAt": "2026-11-30T16:11:45Z",
    "expiresAt": "2026-11-30T16:21:45Z",
    "baseSeconds": 0.137,
    "secondsPerToken": 0.0000577,
    "crowding": 0.5,
    "restores": [
      {
        "reusable": 1024,
        "seconds": 0.061,
        "standardError": 0.0032,
        "requests": 214
      },
      {
        "reusable": 8192,
        "seconds": 0.412,
        "standardError": 0.0471,
        "requests": 31
      }
    ]
  }
`

var exampleTime = time.Date(2026, 11, 30, 16, 11, 51, 0, time.UTC)

func exampleDocument() *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion,
		Pool:       "qwen3-32b",
		Revision:   42,
		UpdatedAt:  exampleTime,
		Baseline:   store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8},
		Trial: &store.Trial{
			ID:         "20261130T161151Z-0007",
			Candidate:  store.Params{MinExternalReusableTokens: store.Never},
			Assignment: store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: 7, Swapped: true},
			StartedAt:  exampleTime,
			ExpiresAt:  exampleTime.Add(10 * time.Minute),
		},
	}
}

// document is a valid one without a trial.
func document(pool string, revision int64) *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion,
		Pool:       pool,
		Revision:   revision,
		UpdatedAt:  exampleTime,
		Baseline:   store.Params{MinExternalReusableTokens: store.Tokens(revision)},
	}
}

func TestParseAndFormat(t *testing.T) {
	got, err := store.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleDocument(), got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	raw, err := store.Format(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example, string(raw)); diff != "" {
		t.Errorf("format (-want +got):\n%s", diff)
	}
}

func exampleCostsDocument() *store.Document {
	d := exampleDocument()
	d.Trial.Candidate.LoadPolicy = store.Adaptive
	d.Costs = &store.Costs{
		FittedAt: exampleTime.Add(-6 * time.Second), ExpiresAt: exampleTime.Add(594 * time.Second),
		BaseSeconds: 0.137, SecondsPerToken: 5.77e-5, Crowding: 0.5,
		Restores: []store.RestoreCost{
			{Reusable: 1024, Seconds: 0.061, StandardError: 0.0032, Requests: 214},
			{Reusable: 8192, Seconds: 0.412, StandardError: 0.0471, Requests: 31},
		},
	}
	return d
}

func TestParseAndFormatCosts(t *testing.T) {
	got, err := store.Parse([]byte(exampleCosts))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleCostsDocument(), got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	raw, err := store.Format(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := store.Parse(raw)
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Errorf("written as %s\nread again: %v\n%s", raw, err, diff)
	}
	got.Costs.Restores[0].Seconds = 9
	if c := exampleCostsDocument().Clone(); cmp.Equal(c, got) {
		t.Error("documents share their costs")
	}
	clone := got.Clone()
	clone.Costs.Restores[0].Seconds, clone.Costs.BaseSeconds = 1, 1
	if got.Costs.Restores[0].Seconds != 9 || got.Costs.BaseSeconds == 1 {
		t.Error("a clone shares the costs")
	}
}

// A document that does not go by costs is read by readers that know none.
func TestThresholdHasNoSpelling(t *testing.T) {
	named := strings.Replace(example, `"maxWaitingRequests": 8`, `"maxWaitingRequests": 8, "loadPolicy": "threshold"`, 1)
	got, err := store.Parse([]byte(named))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := store.Format(got)
	if err != nil || string(raw) != example {
		t.Errorf("%v, %s", err, raw)
	}
}

// TestParseRefusesCosts is like TestParseRefuses.
func TestParseRefusesCosts(t *testing.T) {
	for _, test := range []struct{ old, new, field, says string }{
		{`"adaptive"`, `"clever"`, "trial.candidate.loadPolicy", `"clever" is not allowed, want "threshold" or "adaptive"`},
		{`"adaptive"`, `null`, "trial.candidate.loadPolicy", `null is not allowed`},
		{`"adaptive"`, `""`, "trial.candidate.loadPolicy", `"" is not allowed`},
		{`"fittedAt"`, `"fitted"`, "costs.fittedAt", `a missing field`},
		{`"2026-11-30T16:21:45Z"`, `"2026-11-30T16:11:45Z"`, "costs.expiresAt", `want a time after fittedAt`},
		{`"2026-11-30T16:21:45Z"`, `"2026-11-30T17:11:52Z"`, "costs.expiresAt", `at most 1h0m0s after updatedAt`},
		{`0.137`, `-1`, "costs.baseSeconds", `-1 is not allowed`},
		{`0.0000577`, `0`, "costs.secondsPerToken", `a number above 0`},
		{`0.0000577`, `1e99`, "costs.secondsPerToken", `at most a day`},
		{`"crowding": 0.5`, `"crowding": 1.5`, "costs.crowding", `a number from 0 to 1`},
		{`"reusable": 1024`, `"reusable": 1000`, "costs.restores.[0].reusable", `a power of two from 64 to 65536`},
		{`"reusable": 8192`, `"reusable": 1024`, "costs.restores.[1].reusable", `more than the one before, which is 1024`},
		{`"seconds": 0.412`, `"seconds": "0.4"`, "costs.restores.[1].seconds", `a number`},
		{`"seconds": 0.412`, `"seconds": 1e9`, "costs.restores.[1].seconds", `from 0 to a day`},
		{`0.0471`, `-0.1`, "costs.restores.[1].standardError", `from 0 to a day`},
		{`"requests": 31`, `"requests": -1`, "costs.restores.[1].requests", `0 or more`},
		{`"requests": 31`, `"request": 31`, "costs.restores.[1].requests", `a missing field`},
		{`"crowding": 0.5`, `"crowding": 0.5, "clever": 1`, "costs.clever", `an unknown field`},
	} {
		t.Run(test.field+" "+test.new, func(t *testing.T) {
			raw := strings.Replace(exampleCosts, test.old, test.new, 1)
			if raw == exampleCosts {
				t.Fatal("nothing was changed")
			}
			_, err := store.Parse([]byte(raw))
			var fe *store.FieldError
			if !errors.As(err, &fe) || fe.Field != test.field || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %s: ... %s", err, test.field, test.says)
			}
		})
	}
}

func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), example) || !strings.Contains(string(readme), exampleCostsOnly) {
		t.Error("the document in README.md is not the one that is tested")
	}
}

func TestParseTakesAnyZone(t *testing.T) {
	raw := strings.ReplaceAll(example, "2026-11-30T16:11:51Z", "2026-11-30T17:11:51+01:00")
	got, err := store.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if got.UpdatedAt != exampleTime || got.Trial.StartedAt != exampleTime {
		t.Errorf("got %v and %v, want %v", got.UpdatedAt, got.Trial.StartedAt, exampleTime)
	}
}

// TestParseRefuses changes one thing in the example and wants the error to name
// it, its value and what is allowed.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		field          string
		says           string // value and allowed
	}{
		{"not JSON", example, "hello", "", `hello is not allowed, want a JSON object`},
		{"empty file", example, "", "", `an empty input is not allowed, want a JSON object`},
		{"an array", example, "[]", "", `[] is not allowed, want a JSON object`},
		{"null", example, "null", "", `null is not allowed, want a JSON object`},
		{"cut short", example, example[:200], "baseline", `unexpected end of input`},
		{"cut at the end", example, strings.TrimRight(example, "}\n"), "trial", `unexpected end of input`},
		{"no closing brace", example, example[:strings.LastIndex(example, "}")], "", `unexpected end of input`},
		{"bytes after it", example, example + "{}", "", `"{}" is not allowed, want nothing after the JSON object`},
		{"garbage after it", example, example + "x", "", `want nothing after the JSON object`},
		{"NUL bytes after it", example, example + "\x00\x00", "", `want nothing after the JSON object`},
		{"not UTF-8", "qwen3-32b", "qwen\xff", "", `want valid UTF-8`},
		{"too large", example, strings.Repeat(" ", store.MaxDocumentBytes) + example, "", `at most 1048576 bytes`},

		{"other version", "v1alpha1", "v2", "apiVersion", `"kvtuner/v2" is not allowed, want "kvtuner/v1alpha1"`},
		{"version a number", `"kvtuner/v1alpha1"`, "1", "apiVersion", `1 is not allowed, want a string`},
		{"other version and field", `"kvtuner/v1alpha1"`, `"kvtuner/v2", "budget": 3`, "apiVersion", `"kvtuner/v2"`},
		{"unknown field", `"revision"`, `"budget": 3, "revision"`, "budget", `an unknown field is not allowed, want only apiVersion, pool, revision`},
		{"field in other case", `"pool"`, `"Pool"`, "pool", `a missing field`},
		{"field in both cases", `"pool"`, `"Pool": "a", "pool"`, "Pool", `an unknown field`},
		{"name to garble a log", `"revision"`, `"a\nb": 3, "revision"`, `"a\nb"`, `an unknown field`},
		{"repeated field", `"revision": 42`, `"revision": 41, "revision": 42`, "revision", `a repeated field is not allowed, want it once`},
		{"repeated in another spelling", `"revision": 42`, `"revisio\u006e": 41, "revision": 42`, "revision", `a repeated field`},
		{"repeated below", `"id"`, `"id": "a", "id"`, "trial.id", `a repeated field`},
		{"unknown below", `"share"`, `"ratio": 1, "share"`, "trial.assignment.ratio", `want only mode, share, seed, swapped`},

		{"no pool", `"pool": "qwen3-32b",`, "", "pool", `a missing field is not allowed`},
		{"pool empty", "qwen3-32b", "", "pool", `"" is not allowed, want 1 to 253 letters`},
		{"pool null", `"qwen3-32b"`, "null", "pool", `null is not allowed, want a string`},
		{"pool with newline", "qwen3-32b", `a\nb`, "pool", `"a\nb" is not allowed`},
		{"revision 0", "42", "0", "revision", `0 is not allowed, want 1 or more`},
		{"revision negative", "42", "-1", "revision", `-1 is not allowed`},
		{"revision a fraction", "42", "4.5", "revision", `4.5 is not allowed, want a whole number`},
		{"revision too large", "42", "9223372036854775808", "revision", `want a whole number in range`},
		{"revision text", "42", `"42"`, "revision", `"42" is not allowed, want a whole number`},
		{"revision null", "42", "null", "revision", `null is not allowed`},
		{"revision NaN", "42", "NaN", "revision", `invalid character 'N'`},
		{"updatedAt missing", `"updatedAt": "2026-11-30T16:11:51Z",`, "", "updatedAt", `a missing field`},
		{"updatedAt zero", `"updatedAt": "2026-11-30T16:11:51Z"`, `"updatedAt": "0001-01-01T00:00:00Z"`, "updatedAt", `"0001-01-01T00:00:00Z" is not allowed, want an RFC 3339 time`},
		{"updatedAt without zone", `"updatedAt": "2026-11-30T16:11:51Z"`, `"updatedAt": "2026-11-30T16:11:51"`, "updatedAt", `want an RFC 3339 time`},
		{"updatedAt a number", `"updatedAt": "2026-11-30T16:11:51Z"`, `"updatedAt": 1`, "updatedAt", `1 is not allowed`},
		{"year 10000 in UTC", `"updatedAt": "2026-11-30T16:11:51Z"`, `"updatedAt": "9999-12-31T23:59:59-01:00"`, "updatedAt", `years 1970 to 9999`},

		{"no baseline", `"baseline"`, `"trail"`, "baseline", `a missing field`},
		{"baseline null", example[strings.Index(example, `{
    "minE`):strings.Index(example, ",\n  \"trial\"")], "null", "baseline", `null is not allowed, want a JSON object`},
		{"tokens 0", "1024", "0", "baseline.minExternalReusableTokens", `0 is not allowed, want a whole number of 1 or more, or "inf"`},
		{"tokens missing", `"minExternalReusableTokens": 1024,`, "", "baseline.minExternalReusableTokens", `a missing field`},
		{"tokens infinite", "1024", `"Infinity"`, "baseline.minExternalReusableTokens", `"Infinity" is not allowed`},
		{"tokens the value of Never", "1024", "9223372036854775807", "baseline.minExternalReusableTokens", `or "inf"`},
		{"waiting missing", `,
    "maxWaitingRequests": 8`, "", "baseline.maxWaitingRequests", `a missing field`},
		{"waiting negative", `"maxWaitingRequests": 8`, `"maxWaitingRequests": -1`, "baseline.maxWaitingRequests", `-1 is not allowed, want a whole number: 0 for no gate`},

		{"trial null", example[strings.Index(example, `{
    "id"`):strings.LastIndex(example, "\n}")], "null", "trial", `null is not allowed, want a JSON object`},
		{"trial without id", "20261130T161151Z-0007", "", "trial.id", `"" is not allowed`},
		{"candidate impossible", `"inf"`, "-5", "trial.candidate.minExternalReusableTokens", `-5 is not allowed`},
		{"unknown mode", `"subset"`, `"half"`, "trial.assignment.mode", `"half" is not allowed, want "none", "all" or "subset"`},
		{"share missing", `"share": 0.5,`, "", "trial.assignment.share", `0 is not allowed, want a fraction above 0 and below 1`},
		{"share 1", "0.5", "1", "trial.assignment.share", `1 is not allowed`},
		{"share negative", "0.5", "-0.5", "trial.assignment.share", `-0.5 is not allowed`},
		{"share vanishing", "0.5", "1e-400", "trial.assignment.share", `0 is not allowed`},
		{"share out of range", "0.5", "1e400", "trial.assignment.share", `1e400 is not allowed, want a number`},
		{"share text", "0.5", `"0.5"`, "trial.assignment.share", `want a number`},
		{"share for all", `"subset"`, `"all"`, "trial.assignment.share", `no value with mode "all"`},
		{"seed for none", `"subset",
      "share": 0.5`, `"none"`, "trial.assignment.seed", `7 is not allowed, want no value with mode "none"`},
		{"swapped for all", `"subset",
      "share": 0.5,
      "seed": 7`, `"all"`, "trial.assignment.swapped", `true is not allowed`},
		{"seed negative", `"seed": 7`, `"seed": -7`, "trial.assignment.seed", `-7 is not allowed`},
		{"swapped a number", `"swapped": true`, `"swapped": 1`, "trial.assignment.swapped", `1 is not allowed, want true or false`},
		{"no startedAt", `"startedAt": "2026-11-30T16:11:51Z",`, "", "trial.startedAt", `a missing field`},
		{"expires at start", "16:21:51", "16:11:51", "trial.expiresAt", `a time after startedAt, which is 2026-11-30T16:11:51Z`},
		{"expires before start", "16:21:51", "16:01:51", "trial.expiresAt", `"2026-11-30T16:01:51Z" is not allowed`},
		{"expires too late", "16:21:51", "17:11:52", "trial.expiresAt", `at most 1h0m0s after updatedAt, which is 2026-11-30T17:11:51Z`},
	} {
		t.Run(test.name, func(t *testing.T) {
			raw := strings.Replace(example, test.old, test.new, 1)
			if raw == example {
				t.Fatal("the case changes nothing")
			}
			d, err := store.Parse([]byte(raw))
			if d != nil {
				t.Errorf("got %+v, want none", d)
			}
			wantField(t, test.name, err, test.field)
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, want it to say %q", err, test.says)
			}
			if err != nil && (len(err.Error()) > 400 || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %q, want one short line", err)
			}
		})
	}
}

func TestFormatRefuses(t *testing.T) {
	for field, change := range map[string]func(*store.Document){
		"revision":                    func(d *store.Document) { d.Revision = 0 },
		"updatedAt":                   func(d *store.Document) { d.UpdatedAt = time.Time{} },
		"trial.assignment.share":      func(d *store.Document) { d.Trial.Assignment.Share = math.NaN() },
		"trial.startedAt":             func(d *store.Document) { d.Trial.StartedAt = time.Time{} },
		"trial.assignment.mode":       func(d *store.Document) { d.Trial.Assignment.Mode = "" },
		"baseline.maxWaitingRequests": func(d *store.Document) { d.Baseline.MaxWaitingRequests = -1 },
	} {
		d := exampleDocument()
		change(d)
		_, err := store.Format(d)
		wantField(t, field, err, field)
	}
}

func TestFormatParseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawDocument(t)
		raw, err := store.Format(want)
		if err != nil {
			t.Fatalf("format %+v: %v", want, err)
		}
		got, err := store.Parse(raw)
		if err != nil {
			t.Fatalf("parse %s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func drawDocument(t *rapid.T) *store.Document {
	updated := time.Unix(rapid.Int64Range(0, 200_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	d := &store.Document{
		APIVersion: store.APIVersion,
		Pool:       rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:/-]{0,40}`).Draw(t, "pool"),
		Revision:   rapid.Int64Range(1, math.MaxInt64).Draw(t, "revision"),
		UpdatedAt:  updated,
		Baseline:   drawParams(t, "baseline"),
	}
	if rapid.Bool().Draw(t, "trial") {
		d.Trial = &store.Trial{
			ID:         rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9-]{0,20}`).Draw(t, "id"),
			Candidate:  drawParams(t, "candidate"),
			Assignment: drawAssignment(t),
			StartedAt:  updated,
			ExpiresAt:  updated.Add(time.Duration(rapid.Int64Range(1, int64(store.MaxLease)).Draw(t, "lease"))),
		}
	}
	return d
}

func drawAssignment(t *rapid.T) store.Assignment {
	a := store.Assignment{Mode: rapid.SampledFrom([]store.AssignmentMode{store.AssignNone, store.AssignAll, store.AssignSubset}).Draw(t, "mode")}
	if a.Mode == store.AssignSubset {
		a.Share = rapid.Float64Range(math.SmallestNonzeroFloat64, math.Nextafter(1, 0)).Draw(t, "share")
		a.Seed = rapid.Uint64().Draw(t, "seed")
		a.Swapped = rapid.Bool().Draw(t, "swapped")
	}
	return a
}

// FuzzParse wants no panic, errors that can be shown, and that whatever is accepted is written back to the
// same document.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	for _, cut := range []int{1, 60, 200, len(example) - 2} {
		f.Add([]byte(example[:cut]))
	}
	for _, seed := range []string{"\x1b[2J", "[\"\u009b\u202e\"]", `{"apiVersion":"kvtuner/v1alpha1","revision":["` + "\u202e" + `"]}`, `{}`, `[]`, `null`, `{"apiVersion":"kvtuner/v1alpha1"}`, `{"a":1,"a":2}`, "\xff", strings.Repeat("[", 20000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := store.Parse(raw)
		if err != nil {
			if d != nil {
				t.Fatalf("got %+v with %v", d, err)
			}
			if text := err.Error(); len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("a text that is long or drives a terminal: %.1000q", text)
			}
			return
		}
		formatted, err := store.Format(d)
		if err != nil {
			t.Fatalf("format %+v: %v", d, err)
		}
		again, err := store.Parse(formatted)
		if err != nil {
			t.Fatalf("parse %s: %v", formatted, err)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		if second, _ := store.Format(again); !bytes.Equal(formatted, second) {
			t.Fatalf("formats differ: %s and %s", formatted, second)
		}
	})
}

func TestClone(t *testing.T) {
	d := exampleDocument()
	c := d.Clone()
	if diff := cmp.Diff(d, c); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	c.Trial.Assignment.Share = 0.1
	c.Pool = "other"
	if diff := cmp.Diff(exampleDocument(), d); diff != "" {
		t.Errorf("a change of the clone shows in the original (-want +got):\n%s", diff)
	}
	if got := (*store.Document)(nil).Clone(); got != nil {
		t.Errorf("clone of nil: got %+v", got)
	}
}

func endpoints(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)
	}
	return names
}

func TestEqual(t *testing.T) {
	same := exampleCostsDocument()
	same.UpdatedAt = same.UpdatedAt.In(time.FixedZone("", 3600))
	same.Costs.FittedAt = same.Costs.FittedAt.In(time.FixedZone("", 3600))
	if d := exampleCostsDocument(); !d.Equal(same) || !d.Equal(d.Clone()) || !(*store.Document)(nil).Equal(nil) {
		t.Error("equal documents differ")
	}
	for name, change := range map[string]func(*store.Document){
		"pool":       func(d *store.Document) { d.Pool = "x" },
		"revision":   func(d *store.Document) { d.Revision++ },
		"time":       func(d *store.Document) { d.UpdatedAt = d.UpdatedAt.Add(1) },
		"baseline":   func(d *store.Document) { d.Baseline.MaxWaitingRequests++ },
		"no trial":   func(d *store.Document) { d.Trial = nil },
		"assignment": func(d *store.Document) { d.Trial.Assignment.Seed++ },
		"policy":     func(d *store.Document) { d.Trial.Candidate.LoadPolicy = store.Threshold },
		"no costs":   func(d *store.Document) { d.Costs = nil },
		"costs":      func(d *store.Document) { d.Costs.Restores[1].Seconds++ },
		"lease":      func(d *store.Document) { d.Costs.ExpiresAt = d.Costs.ExpiresAt.Add(1) },
		"expiry":     func(d *store.Document) { d.Trial.ExpiresAt = d.Trial.ExpiresAt.Add(1) },
	} {
		d := exampleCostsDocument()
		change(d)
		if d.Equal(exampleCostsDocument()) || exampleCostsDocument().Equal(d) || d.Equal(nil) {
			t.Errorf("%s: different documents are equal", name)
		}
	}
}
