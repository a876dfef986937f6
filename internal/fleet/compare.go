package fleet

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Comparison is a profile held against measurements.
type Comparison struct {
	Runs    []Run     `json:"runs"`
	Fitted  FitErrors `json:"fitted"`
	HeldOut FitErrors `json:"held_out"`
}

// Run is one measured run beside the model's.
type Run struct {
	Published Measurement `json:"published"`
	// Simulated has the means over the seeds.
	Simulated Stats `json:"simulated"`
}

// FitErrors summarise a set of runs.
type FitErrors struct {
	// ThroughputError and TTFTError are geometric means of the relative error,
	// whichever side is larger: 0.03 is 3%.
	ThroughputError float64 `json:"throughput_geomean_error"`
	TTFTError       float64 `json:"ttft_geomean_error"`
	// OrderingsRight of OrderingsTotal pairs of policies in a cell of a report
	// come out as published. Pairs of two thresholds are not counted. A
	// published difference under 1.5% is a tie, met by one under 3%.
	OrderingsRight int `json:"orderings_right"`
	OrderingsTotal int `json:"orderings_total"`
}

// CompareOptions configure Compare.
type CompareOptions struct {
	Profile      Profile
	Measurements []Measurement
	// Seeds to average over; at least one.
	Seeds []uint64
	// Duration of each run; 0 is PublishedDuration.
	Duration time.Duration
	// Progress, if set, is told each finished run.
	Progress func(done, total int)
}

// Compare simulates each measured run, from the warm start documented in the
// package comment.
func Compare(o CompareOptions) (Comparison, error) {
	if len(o.Seeds) == 0 {
		return Comparison{}, fmt.Errorf("compare: at least one seed is needed")
	}
	known := make(map[runKey]Stats)
	var c Comparison
	for i, m := range o.Measurements {
		key := runKey{m.PrefixTokens, m.Concurrency, m.Setting}
		s, ok := known[key]
		if !ok {
			var err error
			if s, err = o.simulate(key); err != nil {
				return Comparison{}, fmt.Errorf("compare %d tokens, %d streams, %s: %w", m.PrefixTokens, m.Concurrency, m.Setting, err)
			}
			known[key] = s
		}
		c.Runs = append(c.Runs, Run{Published: m, Simulated: s})
		if o.Progress != nil {
			o.Progress(i+1, len(o.Measurements))
		}
	}
	c.Fitted = fitErrors(c.Runs, true)
	c.HeldOut = fitErrors(c.Runs, false)
	return c, nil
}

type runKey struct {
	prefix, streams int
	setting         Setting
}

func (o CompareOptions) simulate(k runKey) (Stats, error) {
	scenario := Scenario{Name: "measured", Profile: o.Profile, Workload: cell(k.prefix, k.streams)}
	var all []Stats
	for _, seed := range o.Seeds {
		f, err := newMeasured(scenario, k.setting, seed)
		if err != nil {
			return Stats{}, err
		}
		f.Advance(cmp.Or(o.Duration, PublishedDuration))
		all = append(all, f.Stats())
	}
	return meanStats(all), nil
}

// newMeasured builds a fleet whose policy runs on the fleet's clock.
func newMeasured(s Scenario, setting Setting, seed uint64) (*Fleet, error) {
	epoch := time.Unix(0, 0).UTC()
	var f *Fleet
	policy, err := setting.Build(func() time.Time {
		if f == nil {
			return epoch
		}
		return f.Now()
	})
	if err != nil {
		return nil, err
	}
	f, err = New(Options{Scenario: s, Seed: seed, Policy: policy, Start: epoch})
	return f, err
}

func meanStats(all []Stats) Stats {
	var m Stats
	n := float64(len(all))
	requests := 0
	for _, s := range all {
		m.Duration += s.Duration / time.Duration(len(all))
		requests += s.Requests
		m.RequestsPerSecond += s.RequestsPerSecond / n
		m.OutputTokensPerSecond += s.OutputTokensPerSecond / n
		m.TTFTMean += s.TTFTMean / n
		m.TTFTP50 += s.TTFTP50 / n
		m.TTFTP99 += s.TTFTP99 / n
		m.ITLMean += s.ITLMean / n
		m.E2EMean += s.E2EMean / n
		m.WaitingMean += s.WaitingMean / n
		m.ExternalPromptShare += s.ExternalPromptShare / n
		m.GPUHitShare += s.GPUHitShare / n
		m.LookupMean += s.LookupMean / n
		m.LookupP90 += s.LookupP90 / n
		m.NVMeReadGiBps += s.NVMeReadGiBps / n
		m.NVMeWriteGiBps += s.NVMeWriteGiBps / n
	}
	m.Requests = requests / len(all)
	return m
}

func fitErrors(runs []Run, fitted bool) FitErrors {
	var e FitErrors
	var throughput, ttft logError
	for i, a := range runs {
		if (a.Published.Report == FittedReport) != fitted {
			continue
		}
		throughput.add(a.Simulated.RequestsPerSecond, a.Published.RequestsPerSecond)
		if p := a.Published.TTFTMeanMS; p != nil {
			ttft.add(a.Simulated.TTFTMean*1000, *p)
		}
		for _, b := range runs[:i] {
			if a.comparable(b) {
				e.OrderingsTotal++
				if sameOrder(a, b) {
					e.OrderingsRight++
				}
			}
		}
	}
	e.ThroughputError, e.TTFTError = throughput.mean(), ttft.mean()
	return e
}

func (a Run) comparable(b Run) bool {
	p, q := a.Published, b.Published
	return p.Report == q.Report && p.PrefixTokens == q.PrefixTokens && p.Concurrency == q.Concurrency &&
		(p.Setting.Policy != "threshold" || q.Setting.Policy != "threshold")
}

// tieBand is the published difference below which two runs count as equal.
const tieBand = 0.015

// sameOrder compares the throughput of two runs as published and simulated.
func sameOrder(a, b Run) bool {
	published := a.Published.RequestsPerSecond/b.Published.RequestsPerSecond - 1
	simulated := a.Simulated.RequestsPerSecond/b.Simulated.RequestsPerSecond - 1
	if math.Abs(published) < tieBand {
		return math.Abs(simulated) < 0.03
	}
	return published*simulated > 0
}

// logError is a geometric mean of relative errors.
type logError struct{ sum, n float64 }

func (e *logError) add(simulated, published float64) {
	e.sum += math.Abs(math.Log(simulated / published))
	e.n++
}

func (e *logError) mean() float64 { return math.Expm1(e.sum / e.n) }
