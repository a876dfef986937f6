package prom

import (
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
)

// isNative reports whether a histogram has exponential buckets: client libraries
// mark an empty one by a span of length 0.
func isNative(h *dto.Histogram) bool {
	return len(h.GetPositiveSpan()) > 0 || len(h.GetNegativeSpan()) > 0 ||
		h.GetZeroThreshold() > 0 || h.GetZeroCount() > 0
}

// isFloat reports whether a native histogram counts in fractions.
func isFloat(h *dto.Histogram) bool {
	return h.GetSampleCountFloat() > 0 || h.GetZeroCountFloat() > 0 ||
		len(h.GetPositiveCount()) > 0 || len(h.GetNegativeCount()) > 0
}

// native adds a histogram with exponential buckets as one sample. The TSDB
// checks that its parts fit together.
func (w *writer) native(h *dto.Histogram, gauge bool) error {
	s := w.lookup(native, 0)
	if isFloat(h) {
		return w.append(s, 0, nil, floatHistogram(h, hint(gauge)).Compact(0))
	}
	return w.append(s, 0, intHistogram(h, hint(gauge)).Compact(0), nil)
}

func hint(gauge bool) histogram.CounterResetHint {
	if gauge {
		return histogram.GaugeType
	}
	return histogram.UnknownCounterReset
}

func intHistogram(h *dto.Histogram, hint histogram.CounterResetHint) *histogram.Histogram {
	return &histogram.Histogram{
		CounterResetHint: hint,
		Schema:           h.GetSchema(),
		ZeroThreshold:    h.GetZeroThreshold(),
		ZeroCount:        h.GetZeroCount(),
		Count:            h.GetSampleCount(),
		Sum:              h.GetSampleSum(),
		PositiveSpans:    spans(h.GetPositiveSpan()),
		PositiveBuckets:  append([]int64(nil), h.GetPositiveDelta()...),
		NegativeSpans:    spans(h.GetNegativeSpan()),
		NegativeBuckets:  append([]int64(nil), h.GetNegativeDelta()...),
	}
}

func floatHistogram(h *dto.Histogram, hint histogram.CounterResetHint) *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		CounterResetHint: hint,
		Schema:           h.GetSchema(),
		ZeroThreshold:    h.GetZeroThreshold(),
		ZeroCount:        h.GetZeroCountFloat(),
		Count:            h.GetSampleCountFloat(),
		Sum:              h.GetSampleSum(),
		PositiveSpans:    spans(h.GetPositiveSpan()),
		PositiveBuckets:  append([]float64(nil), h.GetPositiveCount()...),
		NegativeSpans:    spans(h.GetNegativeSpan()),
		NegativeBuckets:  append([]float64(nil), h.GetNegativeCount()...),
	}
}

func spans(from []*dto.BucketSpan) []histogram.Span {
	out := make([]histogram.Span, len(from))
	for i, s := range from {
		out[i] = histogram.Span{Offset: s.GetOffset(), Length: s.GetLength()}
	}
	return out
}
