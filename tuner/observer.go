package tuner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Prometheus is the part of the query API the tuner needs; promv1.API has it.
type Prometheus interface {
	Query(ctx context.Context, query string, ts time.Time, opts ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error)
}

// observer turns Prometheus' answers into samples of one pool. It keeps no
// state: a window's sample is a function of what Prometheus holds.
type observer struct {
	prom     Prometheus
	settings Settings
}

// sample observes (from, to]. It never fails: what is missing makes the sample
// unknown, with the reason.
func (o *observer) sample(ctx context.Context, from, to time.Time) Sample {
	window := to.Sub(from)
	s := Sample{From: from, To: to, State: Unknown}
	engines, plugin := engineQuery(o.settings, window), pluginQuery(o.settings, window)
	s.Queries = []string{engines, plugin}

	rows, err := o.query(ctx, engines, to)
	if err == nil {
		s.Signals, err = o.signals(rows, from, to)
	}
	switch {
	case err != nil:
		s.Why = Brief(err.Error(), mostWhy)
	case s.Signals.Requests == 0 && s.Signals.RunningSeconds+s.Signals.WaitingSeconds == 0:
		s.State = Idle
	default:
		s.State = OK
	}

	rows, err = o.query(ctx, plugin, to)
	if err == nil {
		s.Plugin, err = o.pluginSample(rows, from, to)
	}
	if err != nil {
		s.Plugin = PluginSample{State: Unknown, Why: Brief(err.Error(), mostWhy)}
	}
	return s
}

// query returns the matrix a range selector asks for. Warnings mean that a part
// of the answer may be missing (a store gateway behind Thanos or Mimir that did
// not answer), so they are errors here.
func (o *observer) query(ctx context.Context, q string, at time.Time) (model.Matrix, error) {
	value, warnings, _, err := o.prom.Query(ctx, q, at)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %s", Brief(apiError(err), mostServer))
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("asking Prometheus: the answer may be partial: %s", Brief(warnings[0], mostServer))
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("asking Prometheus: a range selector was answered with %T, not a matrix", value)
	}
	return matrix, nil
}

// apiError is what the server said, with its details: the client's error has only
// the status.
func apiError(err error) string {
	var e *promv1.Error
	if !errors.As(err, &e) {
		return err.Error() + " (prometheus.url, prometheus.timeout)"
	}
	s := err.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s + " (is prometheus.url the base URL of a Prometheus API, and does it want credentials or a tenant: prometheus.bearerTokenFile, basicAuth, oauth2, headers?)"
}

// errNoSeries is the reason of a selector that matches nothing: an error, not an
// idle fleet.
var errNoSeries = errors.New("the selector matches no series")

func (o *observer) signals(rows model.Matrix, from, to time.Time) (Signals, error) {
	known := o.settings.Metrics.names()
	engines := bySource(known.translate(rows, o.settings.EndpointLabel), o.settings.EndpointLabel)
	if len(engines) == 0 {
		return Signals{}, fmt.Errorf("%w; check selector %q and metrics.preset %q", errNoSeries, o.settings.Selector, o.settings.Metrics.Preset)
	}
	w := window{from: model.TimeFromUnixNano(from.UnixNano()), to: model.TimeFromUnixNano(to.UnixNano())}
	var sum Signals
	var seconds, running, waiting float64
	for _, e := range engines {
		if e.newest() <= w.to.Add(-staleAfter(o.settings.ScrapeInterval)) {
			return Signals{}, fmt.Errorf("engine %s has sent nothing since %s", e.name, e.newest().Time().UTC().Format(time.RFC3339))
		}
		if e.joined(w) {
			continue
		}
		if missing := known.lacks(e); len(missing) > 0 {
			return Signals{}, fmt.Errorf("engine %s exports no %s (metrics.preset %q)", e.name, strings.Join(missing, ", "), o.settings.Metrics.Preset)
		}
		one, err := engineSignals(e, w, o.settings.TensorParallel)
		if err != nil {
			return Signals{}, err
		}
		seconds, running, waiting = seconds+one.Seconds, running+one.RunningSeconds/one.Seconds, waiting+one.WaitingSeconds/one.Seconds
		sum = sum.plus(one)
		sum.Engines++
	}
	if sum.Engines == 0 {
		return Signals{}, fmt.Errorf("no engine was scraped before the window began: engines that have only just appeared, or a scrape interval longer than scrapeInterval, %v", o.settings.ScrapeInterval)
	}
	if sum.Engines < o.settings.Endpoints {
		return Signals{}, fmt.Errorf("%d engines answer, %d are expected (endpoints)", sum.Engines, o.settings.Endpoints)
	}
	// Engines share a window's length, up to a missed scrape.
	sum.Seconds = seconds / float64(sum.Engines)
	sum.RunningSeconds, sum.WaitingSeconds = running*sum.Seconds, waiting*sum.Seconds
	return sum, nil
}

// staleAfter is the silence after which an engine is dark: two missed scrapes
// and some jitter.
func staleAfter(scrape time.Duration) time.Duration { return 2*scrape + scrape/2 }

func engineSignals(e source, w window, ranks int) (Signals, error) {
	r := reader{source: e, window: w}
	s := Signals{
		Seconds:     r.elapsed(seriesE2ECount),
		Requests:    r.increase(seriesE2ECount),
		E2ESeconds:  r.increase(seriesE2ESum),
		FirstTokens: r.increase(seriesTTFTCount),
		TTFTSeconds: r.increase(seriesTTFTSum),
		Generated:   r.increase(seriesGenerated),
		Prompt:      r.increase(seriesPromptTokens),

		External:      r.optional(seriesBySource, labelSource, sourceExternal),
		Errors:        r.optional(seriesFinished, labelFinishedReason, finishedWithError),
		LookupSeconds: r.optional(seriesLookupDelay, "", ""),
		CopySeconds:   r.optional(seriesLoadTime, "", "") / float64(ranks),
	}
	s.RunningSeconds = r.gauge(seriesRunning) * s.Seconds
	s.WaitingSeconds = r.gauge(seriesWaiting) * s.Seconds
	if s.HasSLO = r.has(seriesTTFTBucket); s.HasSLO {
		s.WithinSLO = r.increase(seriesTTFTBucket)
	}
	return s, r.err
}
