package prom

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// writer is one transaction: a scrape of one target at one timestamp.
type writer struct {
	server *Server
	target *target
	at     int64
	app    storage.AppenderV2
	// alive collects the series that later scrapes must end if they vanish,
	// fresh those the target had not exposed before.
	alive, fresh []*series
	scraped      int

	// The metric whose samples are being added.
	info   *dto.MetricFamily
	metric *dto.Metric
	// key identifies a sample among the target's; its first base bytes identify
	// the metric.
	key  []byte
	base int
}

// part says which of a metric's series a sample belongs to.
type part byte

const (
	plain part = iota
	native
	bucket
	quantile
	sum
	count
)

// suffix is what the text format appends to a family's name for each part.
var suffix = [...]string{bucket: "_bucket", sum: "_sum", count: "_count", plain: "", native: "", quantile: ""}

// begin turns to the next metric of a family.
func (w *writer) begin(f *dto.MetricFamily, m *dto.Metric) {
	w.info, w.metric = f, m
	w.key = append(w.key[:0], f.GetName()...)
	for _, l := range m.GetLabel() {
		w.key = append(append(w.key, 0xff), l.GetName()...)
		w.key = append(append(w.key, 0xff), l.GetValue()...)
	}
	w.key = append(w.key, 0xff)
	w.base = len(w.key)
}

// add appends a float sample. bound is the upper bound of a bucket or the rank
// of a quantile, and 0 otherwise.
func (w *writer) add(p part, bound, v float64) error {
	return w.append(w.lookup(p, bound), v, nil, nil)
}

// lookup finds the series of a sample, or prepares one that is new.
func (w *writer) lookup(p part, bound float64) *series {
	w.key = append(w.key[:w.base], byte(p))
	w.key = binary.BigEndian.AppendUint64(w.key, math.Float64bits(bound))
	if known, ok := w.target.series[string(w.key)]; ok {
		return known
	}
	w.server.learn(w.info)
	return &series{key: string(w.key), labels: w.target.attach(w.exposed(p, bound))}
}

// exposed are the labels of a sample before the target's are attached.
func (w *writer) exposed(p part, bound float64) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, l := range w.metric.GetLabel() {
		b.Set(l.GetName(), l.GetValue())
	}
	b.Set(model.MetricNameLabel, w.info.GetName()+suffix[p])
	switch p {
	case bucket:
		b.Set(model.BucketLabel, labels.FormatOpenMetricsFloat(bound))
	case quantile:
		b.Set(model.QuantileLabel, labels.FormatOpenMetricsFloat(bound))
	}
	return b.Labels()
}

// append writes one sample of a series and keeps track of the series.
func (w *writer) append(s *series, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	w.scraped++
	at, explicit := w.at, w.metric.TimestampMs != nil
	if explicit {
		at = w.metric.GetTimestampMs()
	}
	if s.ref == 0 && !s.labels.IsValid(model.UTF8Validation) {
		return fmt.Errorf("invalid metric or label name in %s", s.labels)
	}
	err := w.put(s, at, v, h, fh)
	if droppable(err) {
		w.server.o.Logger.Warn("sample dropped", "target", w.target.name, "series", s.labels.String(), "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("append %s: %w", s.labels, err)
	}
	w.track(s, explicit)
	return nil
}

// put hands one sample to the TSDB.
func (w *writer) put(s *series, at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	if s.seen == w.target.generation {
		return storage.ErrDuplicateSampleForTimestamp
	}
	if at > w.at+maxAhead.Milliseconds() {
		return fmt.Errorf("%w: it is more than %s ahead of its scrape", storage.ErrOutOfBounds, maxAhead)
	}
	ref, err := w.app.Append(s.ref, s.labels, 0, at, v, h, fh, storage.AOptions{})
	if err != nil {
		return err
	}
	s.ref, s.seen = ref, w.target.generation
	return nil
}

// maxAhead is how far an exposed timestamp may lie ahead of its scrape, as in
// Prometheus.
const maxAhead = 10 * time.Minute

// droppable reports whether Prometheus would skip such a sample and go on.
func droppable(err error) bool {
	return errors.Is(err, storage.ErrDuplicateSampleForTimestamp) ||
		errors.Is(err, storage.ErrOutOfOrderSample) ||
		errors.Is(err, storage.ErrOutOfBounds) ||
		errors.Is(err, storage.ErrTooOldSample)
}

// track remembers a series that was written. One with timestamps of its own
// never becomes stale by vanishing.
func (w *writer) track(s *series, explicit bool) {
	if _, known := w.target.series[s.key]; !known {
		w.target.series[s.key] = s
		w.fresh = append(w.fresh, s)
	}
	if !explicit {
		w.alive = append(w.alive, s)
	}
}

// finish ends what vanished, adds the report series, and commits.
func (w *writer) finish(r report) error {
	gone, err := w.endVanished()
	if err != nil {
		return w.abandon(err)
	}
	for i, v := range r.values() {
		if err := w.report(w.target.reports[i], v); err != nil {
			return w.abandon(err)
		}
	}
	return w.commit(gone)
}

// drop ends all series of the target, its report series among them.
func (w *writer) drop() error {
	if w.target.last == noScrape {
		return w.abandon(nil)
	}
	gone, err := w.endVanished()
	if err != nil {
		return w.abandon(err)
	}
	for _, s := range w.target.reports {
		if err := w.report(s, stale); err != nil {
			return w.abandon(err)
		}
	}
	clear(w.target.series)
	return w.commit(gone)
}

// abandon forgets the transaction and returns its cause.
func (w *writer) abandon(cause error) error {
	for _, s := range w.fresh {
		delete(w.target.series, s.key)
	}
	return errors.Join(cause, w.app.Rollback())
}

// endVanished writes a staleness marker for every series alive before that this
// transaction did not write.
func (w *writer) endVanished() (gone []*series, err error) {
	for _, s := range w.target.live {
		if s.seen == w.target.generation {
			continue
		}
		if err := w.report(s, stale); err != nil {
			return nil, err
		}
		gone = append(gone, s)
	}
	return gone, nil
}

// report writes a sample that no target exposed.
func (w *writer) report(s *series, v float64) error {
	ref, err := w.app.Append(s.ref, s.labels, 0, w.at, v, nil, nil, storage.AOptions{})
	if droppable(err) {
		w.server.o.Logger.Warn("sample dropped", "target", w.target.name, "series", s.labels.String(), "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("append %s: %w", s.labels, err)
	}
	s.ref = ref
	return nil
}

// commit makes the transaction visible to queries, all of it at once.
func (w *writer) commit(gone []*series) error {
	if err := w.app.Commit(); err != nil {
		return fmt.Errorf("commit to the TSDB: %w", err)
	}
	for _, s := range gone {
		delete(w.target.series, s.key)
	}
	w.target.live, w.target.last = w.alive, w.at
	w.server.advance(w.at)
	return nil
}

// advance moves the newest scrape's time forward.
func (s *Server) advance(at int64) {
	for {
		newest := s.newest.Load()
		if at <= newest || s.newest.CompareAndSwap(newest, at) {
			return
		}
	}
}
