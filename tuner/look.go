package tuner

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Look takes one sample of (from, to] as the loop would, for those who check a
// set-up before or beside it.
func Look(ctx context.Context, p Prometheus, queryTimeout time.Duration, s Settings, from, to time.Time) Sample {
	return (&observer{prom: timed{p, queryTimeout}, settings: s}).sample(ctx, from, to)
}

// SampleLength is how much time a sample covers.
func (s Settings) SampleLength() time.Duration { return s.step() }

// EngineMatchers select the series of a signal (see SignalNames) of the pool's
// engines: of a histogram the one whose name has this end, such as "_count".
func (s Settings) EngineMatchers(signalName, end string) string {
	n := s.Metrics.names()
	var asked []string
	for _, name := range n.asked {
		if stands := n.of[name].series; signalOf(stands) == signalName && strings.HasSuffix(stands, end) {
			asked = append(asked, name)
		}
	}
	return join(fmt.Sprintf("__name__=~%q", strings.Join(asked, "|")), s.Selector)
}

// SLOMatchers select the engines' buckets at guard.ttft.
func (s Settings) SLOMatchers() string {
	return join(s.EngineMatchers("ttft", "_bucket"), bucketMatcher(s.Guard))
}

// PluginMatchers select the pool's series of the plugin.
func (s Settings) PluginMatchers() string { return pluginSelector(s) }

// Opens is when the schedule next allows tuning, at now or within a year of it.
func (s Settings) Opens(now time.Time) (at time.Time, ok bool) {
	c, err := newCalendar(s.Schedule)
	if err != nil {
		return time.Time{}, false
	}
	if c.open(now) {
		return now, true
	}
	const year = 366 * 24 * time.Hour
	for _, w := range c.windows {
		if next := w.opens.Next(now.In(c.zone)); !next.IsZero() && next.Sub(now) <= year && (!ok || next.Before(at)) {
			at, ok = next, true
		}
	}
	return at, ok
}

// signalOf is the signal that a series of a sample belongs to.
func signalOf(series string) string {
	for _, s := range signals {
		for _, name := range s.series {
			if name == series {
				return s.name
			}
		}
	}
	return ""
}
