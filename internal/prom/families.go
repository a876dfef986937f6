package prom

import (
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
)

// family adds all samples of a metric family.
func (w *writer) family(f *dto.MetricFamily) error {
	for _, m := range f.GetMetric() {
		w.begin(f, m)
		if err := w.samples(f.GetType(), m); err != nil {
			return fmt.Errorf("metric family %s: %w", f.GetName(), err)
		}
	}
	return nil
}

func (w *writer) samples(kind dto.MetricType, m *dto.Metric) error {
	switch kind {
	case dto.MetricType_COUNTER:
		return w.add(plain, 0, m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		return w.add(plain, 0, m.GetGauge().GetValue())
	case dto.MetricType_UNTYPED:
		return w.add(plain, 0, m.GetUntyped().GetValue())
	case dto.MetricType_SUMMARY:
		return w.summary(m.GetSummary())
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		return w.histogram(m.GetHistogram(), kind == dto.MetricType_GAUGE_HISTOGRAM)
	default:
		return fmt.Errorf("unknown metric type %s", kind)
	}
}

func (w *writer) summary(s *dto.Summary) error {
	for _, q := range s.GetQuantile() {
		if err := w.add(quantile, q.GetQuantile(), q.GetValue()); err != nil {
			return err
		}
	}
	return w.totals(s.GetSampleSum(), float64(s.GetSampleCount()))
}

func (w *writer) totals(total, n float64) error {
	if err := w.add(sum, 0, total); err != nil {
		return err
	}
	return w.add(count, 0, n)
}

// histogram adds the native form, the classic form, or both: whatever is there.
// A histogram without any bucket is classic.
func (w *writer) histogram(h *dto.Histogram, gauge bool) error {
	if isNative(h) {
		if err := w.native(h, gauge); err != nil {
			return err
		}
		if len(h.GetBucket()) == 0 {
			return nil
		}
	}
	return w.classic(h)
}

// classic adds the buckets with their cumulative counts. The one up to +Inf
// holds the total count, exposed or not.
func (w *writer) classic(h *dto.Histogram) error {
	n := either(h.GetSampleCountFloat(), h.GetSampleCount())
	complete := false
	for _, b := range h.GetBucket() {
		complete = math.IsInf(b.GetUpperBound(), +1)
		if err := w.add(bucket, b.GetUpperBound(), either(b.GetCumulativeCountFloat(), b.GetCumulativeCount())); err != nil {
			return err
		}
	}
	if !complete {
		if err := w.add(bucket, math.Inf(+1), n); err != nil {
			return err
		}
	}
	return w.totals(h.GetSampleSum(), n)
}

// either is a count that the exposition format carries as a float or, if that
// is 0, as an integer.
func either(f float64, n uint64) float64 {
	if f != 0 {
		return f
	}
	return float64(n)
}
