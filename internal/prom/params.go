package prom

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// maxSeconds bounds the timestamps and durations of requests: some 31,000 years,
// well inside what the engine can calculate with.
const maxSeconds = 1e12

// errTruncated is the warning that a limit cut a result.
var errTruncated = errors.New("results truncated due to limit")

// seconds parses a decimal number of seconds.
func seconds(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && math.Abs(f) <= maxSeconds
}

// parseTime reads seconds since 1970 or RFC 3339, to the millisecond.
func parseTime(text string) (time.Time, error) {
	if f, ok := seconds(text); ok {
		return time.UnixMilli(int64(math.Round(f * 1000))).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", text)
}

// parseDuration reads seconds or Prometheus' notation, such as 1m30s.
func parseDuration(text string) (time.Duration, error) {
	if f, ok := seconds(text); ok && math.Abs(f) < math.MaxInt64/1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	if d, err := model.ParseDuration(text); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", text)
}

// timeParam reads an optional timestamp.
func timeParam(r *http.Request, name string, unset time.Time) (time.Time, error) {
	if r.Form.Get(name) == "" {
		return unset, nil
	}
	return requiredTime(r, name)
}

func requiredTime(r *http.Request, name string) (time.Time, error) {
	t, err := parseTime(r.Form.Get(name))
	if err != nil {
		return time.Time{}, badData("invalid parameter %q: %w", name, err)
	}
	return t, nil
}

func durationParam(r *http.Request, name string) (time.Duration, error) {
	d, err := parseDuration(r.Form.Get(name))
	if err != nil {
		return 0, badData("invalid parameter %q: %w", name, err)
	}
	return d, nil
}

// positiveDuration reads an optional duration; 0 is unset.
func positiveDuration(r *http.Request, name string) (time.Duration, error) {
	if r.Form.Get(name) == "" {
		return 0, nil
	}
	d, err := durationParam(r, name)
	if err == nil && d <= 0 {
		err = badData("invalid parameter %q: must be positive, got %s", name, d)
	}
	return d, err
}

// limits are what a client may ask a query to stay within; 0 is unset.
type limits struct {
	timeout, lookback time.Duration
	limit             int
}

func limitParams(r *http.Request) (l limits, err error) {
	if l.timeout, err = positiveDuration(r, "timeout"); err != nil {
		return limits{}, err
	}
	if l.lookback, err = positiveDuration(r, "lookback_delta"); err != nil {
		return limits{}, err
	}
	l.limit, err = limitParam(r)
	return l, err
}

func limitParam(r *http.Request) (int, error) {
	text := r.Form.Get("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badData(`invalid parameter "limit": %q is not a non-negative integer`, text)
	}
	return n, nil
}

// matchParams reads the series selectors of a request. Each must have a matcher
// that does not match the empty string.
func (s *Server) matchParams(r *http.Request) ([][]*labels.Matcher, error) {
	sets, err := s.parser.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		return nil, badData(`invalid parameter "match[]": %w`, err)
	}
	for _, set := range sets {
		if !selective(set) {
			return nil, badData(`invalid parameter "match[]": match[] must contain at least one non-empty matcher`)
		}
	}
	return sets, nil
}

func selective(set []*labels.Matcher) bool {
	for _, m := range set {
		if !m.Matches("") {
			return true
		}
	}
	return false
}
