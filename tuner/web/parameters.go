package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
)

// Limits of a list of decisions.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

var filterParameters = []string{"pool", "kind", "since", "until", "limit"}

// parameters parses a query string. Unknown names, and several values of one
// that is no list, are errors: a mistyped filter must not select everything.
func parameters(query string, allowed ...string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fail(CodeParameter, "the query string cannot be read: %v", err)
	}
	for name, list := range values {
		if !slices.Contains(allowed, name) {
			return nil, fail(CodeParameter, "unknown parameter %q; allowed are %s", name, strings.Join(allowed, ", "))
		}
		if len(list) > 1 && name != "kind" {
			return nil, fail(CodeParameter, "parameter %s is there %d times; give it once", name, len(list))
		}
	}
	return values, nil
}

// ParseFilter reads pool, kind (several, or separated by commas), since, until
// (an RFC 3339 time, or a duration before now such as 90m or 7d) and limit. The
// filter selects the newest first. Errors are of type *Error.
func ParseFilter(values url.Values, now time.Time) (store.Filter, error) {
	f := store.Filter{Pool: values.Get("pool"), NewestFirst: true}
	var err error
	if f.Kinds, err = parseKinds(values["kind"]); err != nil {
		return f, err
	}
	if f.Since, err = parseTime("since", values.Get("since"), now); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", values.Get("until"), now); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, fail(CodeParameter, "since %s is not before until %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	f.Limit, err = parseLimit(values.Get("limit"))
	return f, err
}

func parseKinds(values []string) ([]store.Kind, error) {
	var kinds []store.Kind
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			kind := store.Kind(strings.TrimSpace(name))
			if kind == "" {
				continue
			}
			if !slices.Contains(store.Kinds(), kind) {
				return nil, fail(CodeParameter, "kind %q is not allowed; use %s", kind, KindNames())
			}
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

func parseTime(name, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return t.UTC(), nil
	}
	ago, err := model.ParseDuration(value)
	if err != nil {
		return time.Time{}, fail(CodeParameter, "%s %q is neither a time such as 2026-11-30T16:00:00Z nor a duration before now such as 90m or 7d", name, value)
	}
	return now.Add(-time.Duration(ago)).UTC(), nil
}

func parseLimit(value string) (int, error) {
	if value == "" {
		return DefaultLimit, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > MaxLimit {
		return 0, fail(CodeParameter, "limit %q is not allowed; a whole number from 1 to %d", value, MaxLimit)
	}
	return n, nil
}

// KindNames lists the kinds of decisions, as ?kind takes them.
func KindNames() string {
	names := make([]string, len(store.Kinds()))
	for i, kind := range store.Kinds() {
		names[i] = string(kind)
	}
	return strings.Join(names, ", ")
}
