package tuner

import (
	"fmt"
	"math"
	"sort"

	"github.com/prometheus/common/model"
)

// source is one exporter (an engine, an EPP replica) and its series by name. Its
// own name is made fit to be shown.
type source struct {
	name   string
	series map[string][]*model.SampleStream
}

// bySource groups series by the label that tells exporters apart, in stable
// order. Series without the label belong to a source named "".
func bySource(rows model.Matrix, label string) []source {
	index := map[string]int{}
	var out []source
	for _, row := range rows {
		if len(row.Values) == 0 {
			continue
		}
		name := string(row.Metric[model.LabelName(label)])
		i, ok := index[name]
		if !ok {
			i = len(out)
			index[name] = i
			out = append(out, source{name: Brief(name, mostName), series: map[string][]*model.SampleStream{}})
		}
		metric := string(row.Metric[model.MetricNameLabel])
		out[i].series[metric] = append(out[i].series[metric], row)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// newest is the time of the latest point of any series of the source.
func (s source) newest() model.Time {
	var t model.Time
	for _, rows := range s.series {
		for _, row := range rows {
			t = max(t, row.Values[len(row.Values)-1].Timestamp)
		}
	}
	return t
}

// joined reports whether the source has no point at or before the window's
// start: it appeared within, and what it counted before is not known.
func (s source) joined(w window) bool {
	for _, rows := range s.series {
		for _, row := range rows {
			if row.Values[0].Timestamp <= w.from {
				return false
			}
		}
	}
	return true
}

// window is a half-open stretch of time, (from, to].
type window struct{ from, to model.Time }

// points returns the last point at or before the window's start, if any, and
// all points within.
func (w window) points(values []model.SamplePair) (before *model.SamplePair, within []model.SamplePair) {
	first := sort.Search(len(values), func(i int) bool { return values[i].Timestamp > w.from })
	last := sort.Search(len(values), func(i int) bool { return values[i].Timestamp > w.to })
	if first > 0 {
		before = &values[first-1]
	}
	return before, values[min(first, last):last]
}

// increase is what a counter gained in the window, resets included. A counter
// that appeared within the window while its source was known counted from 0:
// that is how clients expose a label set's first event. One below 0 counts nothing
// that can be known.
func (w window) increase(values []model.SamplePair) float64 {
	before, within := w.points(values)
	last := 0.0
	if before != nil {
		last = float64(before.Value)
	}
	gained := 0.0
	for _, p := range within {
		v := float64(p.Value)
		if v < 0 {
			return math.NaN()
		}
		if v < last {
			last = 0
		}
		gained += v - last
		last = v
	}
	return gained
}

// reader reads the series of one source in one window and keeps the first error.
type reader struct {
	source
	window window
	err    error
}

func (r *reader) fail(format string, args ...any) float64 {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return 0
}

func (r *reader) has(name string) bool { return len(r.series[name]) > 0 }

// increase sums the increases of all series of a name; none is an error.
func (r *reader) increase(name string) float64 {
	if !r.has(name) {
		return r.fail("%s exports no %s", r.name, name)
	}
	return r.optional(name, "", "")
}

// optional is like increase, of the series whose label has the value, and 0 when
// there are none: for counters that are absent until their first event.
func (r *reader) optional(name, label, value string) float64 {
	sum := 0.0
	for _, row := range r.series[name] {
		if label != "" && string(row.Metric[model.LabelName(label)]) != value {
			continue
		}
		sum += r.window.increase(row.Values)
	}
	return r.finite(name, sum)
}

// largest is the largest sum that is believed; counters of tokens and seconds
// stay far below, and sums over engines stay finite.
const largest = 1e15

// finite refuses what is no number that can be calculated with.
func (r *reader) finite(name string, v float64) float64 {
	if !(v >= 0 && v <= largest) {
		return r.fail("%s of %s is not a finite number from 0 to %g", name, r.source.name, largest)
	}
	return v
}

// elapsed is the time between the points that bound the window, in seconds.
func (r *reader) elapsed(name string) float64 {
	if !r.has(name) {
		return r.fail("%s exports no %s", r.name, name)
	}
	before, within := r.window.points(r.series[name][0].Values)
	if len(within) == 0 {
		return r.fail("%s was not scraped in the window; is its scrape interval longer than scrapeInterval?", r.name)
	}
	start := within[0].Timestamp
	if before != nil {
		start = before.Timestamp
	}
	seconds := within[len(within)-1].Timestamp.Sub(start).Seconds()
	if seconds <= 0 {
		return r.fail("%s was scraped only once in the window", r.name)
	}
	return seconds
}

// gauge sums, over the series of a name, the mean of their points in the window.
func (r *reader) gauge(name string) float64 {
	if !r.has(name) {
		return r.fail("%s exports no %s", r.name, name)
	}
	sum := 0.0
	for _, row := range r.series[name] {
		_, within := r.window.points(row.Values)
		if len(within) == 0 {
			return r.fail("%s of %s has no value in the window", name, r.source.name)
		}
		mean := 0.0
		for _, p := range within {
			mean += float64(p.Value) / float64(len(within))
		}
		sum += mean
	}
	if !(sum >= 0 && sum <= largest) {
		return r.fail("%s of %s is %v; a gauge of requests is finite and not negative", name, r.source.name, sum)
	}
	return sum
}

// isSet tells whether the last point of the gauge whose label has the value is
// not 0; without the gauge it is not.
func (r *reader) isSet(name, label, value string) bool {
	for _, row := range r.series[name] {
		if _, within := r.window.points(row.Values); string(row.Metric[model.LabelName(label)]) == value && len(within) > 0 {
			return within[len(within)-1].Value != 0
		}
	}
	return false
}

// latest returns the lowest and the highest of the last points of a gauge's
// series: whole numbers are never averaged.
func (r *reader) latest(name string) (low, high int64) {
	if !r.has(name) {
		r.fail("%s exports no %s", r.name, name)
		return 0, 0
	}
	low = math.MaxInt64
	for _, row := range r.series[name] {
		_, within := r.window.points(row.Values)
		if len(within) == 0 {
			r.fail("%s of %s has no value in the window", name, r.source.name)
			return 0, 0
		}
		v := float64(within[len(within)-1].Value)
		if math.IsNaN(v) || v < 0 || v > 1<<53 {
			r.fail("%s of %s is %v; a revision is a whole number, 0 or more", name, r.source.name, v)
			return 0, 0
		}
		low, high = min(low, int64(v)), max(high, int64(v))
	}
	return low, high
}
