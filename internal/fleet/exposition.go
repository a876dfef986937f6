package fleet

import (
	"cmp"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// exposition collects metric families; labels are on every metric but infos.
type exposition struct {
	labels   []*dto.LabelPair
	families []*dto.MetricFamily
}

func labels(pairs ...string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, 0, len(pairs)/2+1)
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	return out
}

func (e *exposition) family(name, help string, t dto.MetricType) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: t.Enum()}
	e.families = append(e.families, f)
	return f
}

// with are the common labels and more.
func (e *exposition) with(pairs []string) []*dto.LabelPair {
	if len(pairs) == 0 {
		return e.labels
	}
	all := append(e.labels[:len(e.labels):len(e.labels)], labels(pairs...)...)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

func (e *exposition) counter(f *dto.MetricFamily, v float64, pairs ...string) {
	f.Metric = append(f.Metric, &dto.Metric{Label: e.with(pairs), Counter: &dto.Counter{Value: &v}})
}

func (e *exposition) gauge(f *dto.MetricFamily, v float64, pairs ...string) {
	f.Metric = append(f.Metric, &dto.Metric{Label: e.with(pairs), Gauge: &dto.Gauge{Value: &v}})
}

func (e *exposition) plainCounter(name, help string, v float64) {
	e.counter(e.family(name, help, dto.MetricType_COUNTER), v)
}

func (e *exposition) plainGauge(name, help string, v float64) {
	e.gauge(e.family(name, help, dto.MetricType_GAUGE), v)
}

func (e *exposition) histogram(name, help string, h *histogram) {
	out := &dto.Histogram{SampleCount: proto.Uint64(h.n), SampleSum: proto.Float64(h.sum)}
	buckets := make([]dto.Bucket, len(h.edges))
	counts := make([]uint64, len(h.edges))
	sum := uint64(0)
	for i := range h.edges {
		sum += h.counts[i]
		counts[i] = sum
		buckets[i].UpperBound, buckets[i].CumulativeCount = &h.edges[i], &counts[i]
		out.Bucket = append(out.Bucket, &buckets[i])
	}
	f := e.family(name, help, dto.MetricType_HISTOGRAM)
	f.Metric = append(f.Metric, &dto.Metric{Label: e.labels, Histogram: out})
}

// transfers exposes one direction of offload traffic once there was any.
func (e *exposition) transfers(prefix, direction string, t *transfers) {
	if t.size.n == 0 {
		return
	}
	e.plainCounter(prefix+"_bytes_total", "Bytes moved "+direction+", over all ranks.", t.bytes)
	e.plainCounter(prefix+"_time_total", "Seconds spent moving "+direction+", over all ranks.", t.seconds)
	e.histogram(prefix+"_size", "Bytes of an operation of one rank "+direction+".", &t.size)
}

// tier exposes a tiering direction for the tiers that had traffic.
func (e *exposition) tier(prefix, name1 string, v1 volume, name2 string, v2 volume) {
	if v1.bytes == 0 && v2.bytes == 0 {
		return
	}
	bytes := e.family(prefix+"_bytes_total", "Bytes by tier.", dto.MetricType_COUNTER)
	seconds := e.family(prefix+"_time_total", "Seconds by tier, overlapping jobs added up.", dto.MetricType_COUNTER)
	add := func(name string, v volume) {
		if v.bytes > 0 {
			e.counter(bytes, v.bytes, "tier", name)
			e.counter(seconds, v.seconds, "tier", name)
		}
	}
	add(name1, v1)
	add(name2, v2)
}
