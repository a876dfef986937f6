package prom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/value"
)

// reportNames are the series Prometheus adds to every scrape, in the order of
// report.values.
var reportNames = []string{
	"up",
	"scrape_duration_seconds",
	"scrape_samples_scraped",
	"scrape_samples_post_metric_relabeling",
	"scrape_series_added",
}

// report is what Prometheus records about a scrape itself. A scrape at a
// virtual timestamp has no duration.
type report struct {
	up             bool
	scraped, added int
}

func (r report) values() [5]float64 {
	up := 0.0
	if r.up {
		up = 1
	}
	return [5]float64{up, 0, float64(r.scraped), float64(r.scraped), float64(r.added)}
}

// Scrape records everything g exposes at the given time, to the millisecond, as
// a scrape of the target would: target labels win over exposed ones, up is 1,
// and series that vanished since the target's last scrape become stale. A
// histogram that is both classic and native is recorded as both.
//
// If g fails, or exposes what Prometheus refuses, up is 0, all series of the
// target become stale, and the error wraps ErrScrape. An error that wraps
// ErrTime, ErrTarget or ErrClosed means that nothing was recorded.
func (s *Server) Scrape(at time.Time, target map[string]string, g prometheus.Gatherer) error {
	t, err := s.target(target)
	if err != nil {
		return err
	}
	families, gatherErr := g.Gather()
	return s.write(t, at, func(w *writer) error {
		if gatherErr != nil {
			return s.fail(w, gatherErr)
		}
		return s.succeed(w, families)
	})
}

// ScrapeFailed records a scrape that got no answer: up is 0 and the target's
// series become stale. Errors wrap ErrTime, ErrTarget or ErrClosed.
func (s *Server) ScrapeFailed(at time.Time, target map[string]string) error {
	t, err := s.target(target)
	if err != nil {
		return err
	}
	return s.write(t, at, func(w *writer) error { return w.finish(report{}) })
}

// Drop records that the target is gone from service discovery: all its series
// become stale, up among them. Errors wrap ErrTime, ErrTarget or ErrClosed. A
// target that was never scraped has nothing to drop.
func (s *Server) Drop(at time.Time, target map[string]string) error {
	t, err := s.target(target)
	if err != nil {
		return err
	}
	return s.write(t, at, (*writer).drop)
}

// write runs one transaction on a target's series at a time later than its last.
func (s *Server) write(t *target, at time.Time, fill func(*writer) error) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	t.mu.Lock()
	defer t.mu.Unlock()

	ms, err := s.accept(t.last, at)
	if err != nil {
		return fmt.Errorf("scrape %s at %s: %w", t.name, at.UTC().Format(time.RFC3339Nano), err)
	}
	if err := fill(s.newWriter(t, ms)); err != nil {
		return fmt.Errorf("scrape %s at %s: %w", t.name, at.UTC().Format(time.RFC3339Nano), err)
	}
	return nil
}

// accept checks that the TSDB can take samples at this time, which must be later
// than the last of the same source.
func (s *Server) accept(last int64, at time.Time) (ms int64, err error) {
	if at.UnixMilli() < 0 {
		return 0, fmt.Errorf("%w: it is before 1970", ErrTime)
	}
	ms = at.UnixMilli()
	newest := s.newest.Load()
	switch {
	case ms <= last:
		return 0, fmt.Errorf("%w: the target was last scraped at %s, scrapes must move forward", ErrTime, clock(last))
	case newest == noScrape:
		return ms, nil
	case ms > newest+s.o.MaxGap.Milliseconds():
		return 0, fmt.Errorf("%w: more than MaxGap (%s) ahead of the newest scrape at %s", ErrTime, s.o.MaxGap, clock(newest))
	case ms < newest-s.o.Lateness.Milliseconds():
		return 0, fmt.Errorf("%w: more than Lateness (%s) behind the newest scrape at %s", ErrTime, s.o.Lateness, clock(newest))
	}
	return ms, nil
}

// clock spells a timestamp in milliseconds for a message.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// succeed writes a complete scrape. If the TSDB refuses a sample, the scrape
// becomes a failed one.
func (s *Server) succeed(w *writer, families []*dto.MetricFamily) error {
	for _, f := range families {
		if err := w.family(f); err != nil {
			return s.fail(s.newWriter(w.target, w.at), w.abandon(err))
		}
	}
	return w.finish(report{up: true, scraped: w.scraped, added: len(w.fresh)})
}

// fail writes a failed scrape and returns its cause.
func (s *Server) fail(w *writer, cause error) error {
	return errors.Join(fmt.Errorf("%w: %w", ErrScrape, cause), w.finish(report{}))
}

// newWriter starts a transaction.
func (s *Server) newWriter(t *target, at int64) *writer {
	t.generation++
	return &writer{
		server: s, target: t, at: at,
		app:   s.db.AppenderV2(context.Background()),
		alive: make([]*series, 0, len(t.live)),
	}
}

// stale is the marker that ends a series.
var stale = math.Float64frombits(value.StaleNaN)
