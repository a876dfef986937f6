package fleet

import (
	"math"
	"slices"
	"time"
)

// Stats summarise the requests completed since New or ResetStats, as their
// clients saw them. Ratios are NaN while nothing was completed.
type Stats struct {
	// Duration is the virtual time covered.
	Duration time.Duration
	// Requests completed.
	Requests int
	// RequestsPerSecond completed, OutputTokensPerSecond generated.
	RequestsPerSecond, OutputTokensPerSecond float64
	// TTFT in seconds from the client's issue to the first token.
	TTFTMean, TTFTP50, TTFTP99 float64
	// ITLMean is the mean time between two output tokens of a request, E2EMean
	// the mean time from issue to last token; seconds.
	ITLMean, E2EMean float64
	// WaitingMean is the time average of requests waiting in all engines
	// together, lookups and restores included.
	WaitingMean float64
	// ExternalPromptShare is the share of prompt tokens restored from outside
	// the GPU, 0 to 1.
	ExternalPromptShare float64
	// GPUHitShare is the share of prompt tokens found in the GPU cache.
	GPUHitShare float64
	// LookupMean and LookupP90 are of the delays of lookups started, in
	// seconds, without the reads of shared storage that follow some.
	LookupMean, LookupP90 float64
	// NVMeReadGiBps and NVMeWriteGiBps are the mean traffic of the node's
	// storage.
	NVMeReadGiBps, NVMeWriteGiBps float64
}

// Second is one second of a run, for plots.
type Second struct {
	Requests int
	// OutputTokens of the requests completed.
	OutputTokens int
	// TTFT and E2E are sums over the requests completed, in seconds.
	TTFT, E2E float64
	// Waiting is the mean number of requests waiting in all engines.
	Waiting float64
}

// counts grow for ever; statistics take differences.
type counts struct {
	issued, completed        uint64
	prompt, output, external float64
}

// statistics are what Stats needs, since the last reset.
type statistics struct {
	since   instant
	base    counts
	gpuHits float64
	lookups []float64
	written float64
	read    float64

	ttft     []float64
	ttftSum  float64
	itlSum   float64
	itlCount float64
	e2eSum   float64

	waiting float64 // integral over time
	seconds []Second
}

// pass integrates the waiting queues up to t.
func (s *statistics) pass(f *Fleet, t instant) {
	if t == f.now {
		return
	}
	waiting := 0
	for i := range f.replicas {
		waiting += f.replicas[i].load().waiting
	}
	s.waiting += float64(waiting) * (t - f.now).seconds()
	for at := f.now; at < t; {
		end := min(t, at-(at-s.since)%second+second)
		s.second(at).Waiting += float64(waiting) * (end - at).seconds()
		at = end
	}
}

// second is the bucket of a moment.
func (s *statistics) second(t instant) *Second {
	i := int((t - s.since) / second)
	for len(s.seconds) <= i {
		s.seconds = append(s.seconds, Second{})
	}
	return &s.seconds[i]
}

func (f *Fleet) recordCompletion(q *request) {
	f.count.completed++
	f.stats.complete(q, f.now)
	f.total.complete(q, f.now)
}

func (s *statistics) complete(q *request, now instant) {
	ttft := (q.first - q.issued).seconds()
	e2e := (now - q.issued).seconds()
	s.ttft = append(s.ttft, ttft)
	s.ttftSum += ttft
	s.e2eSum += e2e
	s.itlSum += (now - q.first).seconds()
	s.itlCount += float64(q.outputTokens - 1)
	b := s.second(now)
	b.Requests++
	b.OutputTokens += int(q.outputTokens)
	b.TTFT += ttft
	b.E2E += e2e
}

// ResetStats starts a new measurement.
func (f *Fleet) ResetStats() {
	f.stats = f.measure()
}

// measure starts statistics at the current instant.
func (f *Fleet) measure() statistics {
	f.storage.advance(f.now)
	return statistics{
		since:   f.now,
		base:    f.count,
		gpuHits: f.gpuHits(),
		written: f.storage.written,
		read:    f.readBytes(),
	}
}

// Stats summarises the measurement so far.
func (f *Fleet) Stats() Stats { return f.summarise(&f.stats) }

// Total summarises everything since New, whatever was reset meanwhile.
func (f *Fleet) Total() Stats { return f.summarise(&f.total) }

func (f *Fleet) summarise(s *statistics) Stats {
	f.storage.advance(f.now)
	d := (f.now - s.since).seconds()
	n := float64(len(s.ttft))
	prompt := f.count.prompt - s.base.prompt
	sorted, lookups := slices.Clone(s.ttft), slices.Clone(s.lookups)
	slices.Sort(sorted)
	slices.Sort(lookups)
	return Stats{
		Duration:              (f.now - s.since).duration(),
		Requests:              len(s.ttft),
		RequestsPerSecond:     n / d,
		OutputTokensPerSecond: (f.count.output - s.base.output) / d,
		TTFTMean:              s.ttftSum / n,
		TTFTP50:               quantile(sorted, 0.50),
		TTFTP99:               quantile(sorted, 0.99),
		ITLMean:               s.itlSum / s.itlCount,
		E2EMean:               s.e2eSum / n,
		WaitingMean:           s.waiting / d,
		ExternalPromptShare:   (f.count.external - s.base.external) / prompt,
		GPUHitShare:           (f.gpuHits() - s.gpuHits) / prompt,
		LookupMean:            sum(lookups) / float64(len(lookups)),
		LookupP90:             quantile(lookups, 0.90),
		NVMeReadGiBps:         (f.readBytes() - s.read) / gib / d,
		NVMeWriteGiBps:        (f.storage.written - s.written) / gib / d,
	}
}

// Seconds is the measurement second by second. The slice is the fleet's own:
// read it before the next Advance.
func (f *Fleet) Seconds() []Second { return f.stats.seconds }

func (f *Fleet) gpuHits() float64 {
	sum := 0.0
	for i := range f.replicas {
		sum += f.replicas[i].metrics.localHit
	}
	return sum
}

func (f *Fleet) readBytes() float64 {
	sum := 0.0
	for i := range f.replicas {
		sum += f.replicas[i].metrics.sharedRead.bytes
	}
	return sum
}

func sum(all []float64) float64 {
	total := 0.0
	for _, v := range all {
		total += v
	}
	return total
}

// quantile of sorted values by the nearest rank; NaN of none.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, i)]
}
