package prom

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a Server. The zero value is a usable in-process Prometheus
// in a temporary directory.
type Options struct {
	// Dir holds the samples and its write-ahead log, and outlives Close. Empty
	// is a temporary directory without a log, removed on Close.
	Dir string
	// Logger receives what the TSDB and the server report; nil discards it.
	Logger *slog.Logger
	// Registerer takes the TSDB's and the engine's own metrics; nil for none.
	Registerer prometheus.Registerer
	// Now is the evaluation time of a query that names none. Nil is the time of
	// the newest scrape, which keeps virtual time free of the wall clock.
	Now func() time.Time
	// Lookback is how far back an instant selector looks for a sample. At least
	// 1 ms; 0 is Prometheus' 5 minutes.
	Lookback time.Duration
	// Retention is the age, against the newest block, at which samples may be
	// deleted. At least 1 ms; 0 is Prometheus' 15 days.
	Retention time.Duration
	// Lateness is how far a target may lag behind the newest scrape of any
	// target. At least 1 ms; 0 is 1 hour.
	Lateness time.Duration
	// MaxGap is how far a scrape may lie ahead of the newest one. One sample far
	// in the future would make the TSDB refuse all that follow it. At least
	// 1 ms; 0 is 24 hours.
	MaxGap time.Duration
	// QueryTimeout bounds one query in wall-clock time. At least 1 ms; 0 is
	// Prometheus' 2 minutes.
	QueryTimeout time.Duration
}

// Errors that Scrape, ScrapeFailed, Drop and Evaluate wrap.
var (
	// ErrClosed: the server was closed.
	ErrClosed = errors.New("embedded Prometheus is closed")
	// ErrTime: a timestamp the TSDB cannot take, too old or too far ahead.
	// Nothing was recorded.
	ErrTime = errors.New("timestamp not accepted")
	// ErrTarget: target labels that no scrape configuration could produce.
	ErrTarget = errors.New("invalid target labels")
	// ErrScrape: the target could not be scraped. This was recorded as up 0.
	ErrScrape = errors.New("scrape failed")
)

// Defaults of Options; all but the last two are those of the Prometheus server.
const (
	defaultLookback     = 5 * time.Minute
	defaultRetention    = 15 * 24 * time.Hour
	defaultQueryTimeout = 2 * time.Minute
	defaultLateness     = time.Hour
	defaultMaxGap       = 24 * time.Hour
)

// withDefaults fills in what is unset and refuses what no duration can mean.
func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	durations := []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{
		{"Lookback", &o.Lookback, defaultLookback},
		{"Retention", &o.Retention, defaultRetention},
		{"Lateness", &o.Lateness, defaultLateness},
		{"MaxGap", &o.MaxGap, defaultMaxGap},
		{"QueryTimeout", &o.QueryTimeout, defaultQueryTimeout},
	}
	var errs []error
	for _, d := range durations {
		switch {
		case *d.value == 0:
			*d.value = d.unset
		case *d.value < time.Millisecond:
			errs = append(errs, fmt.Errorf("option %s is %s: must be at least 1ms, or 0 for %s", d.name, *d.value, d.unset))
		}
	}
	return o, errors.Join(errs...)
}
