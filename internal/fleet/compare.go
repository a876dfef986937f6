package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Comparison is a profile held against measurements.
type Comparison struct {
	Runs    []Run
	Fitted  FitErrors
	HeldOut FitErrors
}

// Run is one measured run beside the model's.
type Run struct {
	Published Measurement
	// Fitted tells that the run's report is one that parameters were fitted to.
	Fitted bool
	// Simulated has the means over the seeds.
	Simulated Stats
	// BySeed are the runs that went into Simulated, in the order of the seeds.
	BySeed []Stats
}

// CompareOptions configure Compare.
type CompareOptions struct {
	Profile      Profile
	Measurements []Measurement
	// Fitted names the reports the profile was fitted to; nil is FittedReport.
	// All others are held out.
	Fitted []string
	// Base has what all runs share: new and output tokens, and the corpus. nil
	// is the published workload.
	Base *Workload
	// Seeds to average over; at least one.
	Seeds []uint64
	// Duration of each run; 0 is PublishedDuration.
	Duration time.Duration
	// Parallel is how many runs are simulated at a time; 0 is one a core. The
	// result does not depend on it.
	Parallel int
	// Progress, if set, is told each finished run, from one goroutine at a time.
	Progress func(done, total int)
}

// maxSimulations keeps a typing error from filling the memory.
const maxSimulations = 200_000

// Validate names what is wrong, and for which measurement.
func (o CompareOptions) Validate() error {
	switch {
	case len(o.Measurements) == 0:
		return errors.New("there are no measurements")
	case len(o.Seeds) == 0:
		return errors.New("at least one seed is needed")
	case len(o.Seeds)*len(o.Measurements) > maxSimulations:
		return fmt.Errorf("%d seeds for each of %d measurements are too many; at most %d runs in all are simulated", len(o.Seeds), len(o.Measurements), maxSimulations)
	case o.Duration < 0:
		return fmt.Errorf("duration %v must not be negative", o.Duration)
	}
	known := make(map[string]bool)
	for _, m := range o.Measurements {
		known[m.Report] = true
		if err := errors.Join(m.check(), o.checkRun(m.key())); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	for _, report := range o.Fitted {
		if !known[report] {
			return fmt.Errorf("report %s is not among the measurements, which have %s", clip(report), listSome(slices.Sorted(maps.Keys(known))))
		}
	}
	return nil
}

// listSome of many names.
func listSome(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (o CompareOptions) checkRun(k runKey) error {
	if block := int(o.Profile.BlockTokens); k.prefix < block {
		return fmt.Errorf("a prefix shorter than a block of %d tokens, the profile's blockTokens, is never shared", block)
	}
	return o.scenario(k).Validate()
}

// isFitted tells which reports are fitted.
func (o CompareOptions) isFitted() func(Measurement) bool {
	fitted := map[string]bool{FittedReport: o.Fitted == nil}
	for _, report := range o.Fitted {
		fitted[report] = true
	}
	return func(m Measurement) bool { return fitted[m.Report] }
}

// FittedOnly holds back what is to be predicted.
func (o CompareOptions) FittedOnly() CompareOptions {
	var fitted []Measurement
	is := o.isFitted()
	for _, m := range o.Measurements {
		if is(m) {
			fitted = append(fitted, m)
		}
	}
	o.Measurements = fitted
	return o
}

// Compare simulates each measured run, from the warm start documented in the
// package comment.
func Compare(ctx context.Context, o CompareOptions) (Comparison, error) {
	if err := o.Validate(); err != nil {
		return Comparison{}, fmt.Errorf("compare: %w", err)
	}
	simulated, err := o.simulateAll(ctx)
	if err != nil {
		return Comparison{}, fmt.Errorf("compare: %w", err)
	}
	var c Comparison
	isFitted := o.isFitted()
	for _, m := range o.Measurements {
		all := simulated[m.key()]
		c.Runs = append(c.Runs, Run{Published: m, Fitted: isFitted(m), Simulated: meanStats(all), BySeed: all})
	}
	c.Fitted = fitErrors(c.Runs, true)
	c.HeldOut = fitErrors(c.Runs, false)
	return c, nil
}

// runKey is what distinguishes runs: reports repeat each other's.
type runKey struct {
	prefix, streams int
	setting         Setting
}

func (m Measurement) key() runKey { return runKey{m.PrefixTokens, m.Concurrency, m.Setting} }

// simulateAll runs every different setting with every seed.
func (o CompareOptions) simulateAll(ctx context.Context) (map[runKey][]Stats, error) {
	var keys []runKey
	all := make(map[runKey][]Stats)
	for _, m := range o.Measurements {
		if _, known := all[m.key()]; !known {
			keys = append(keys, m.key())
			all[m.key()] = make([]Stats, len(o.Seeds))
		}
	}
	work, running := errgroup.WithContext(ctx)
	work.SetLimit(cmp.Or(o.Parallel, runtime.GOMAXPROCS(0)))
	finished := o.counter(len(keys) * len(o.Seeds))
	for _, key := range keys {
		runs := all[key]
		for i, seed := range o.Seeds {
			if running.Err() != nil {
				break
			}
			work.Go(func() (err error) {
				if runs[i], err = o.simulate(running, key, seed); err != nil {
					return fmt.Errorf("%d tokens, %d streams, %s: %w", key.prefix, key.streams, key.setting, err)
				}
				finished()
				return nil
			})
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return all, ctx.Err()
}

// counter tells the progress.
func (o CompareOptions) counter(total int) func() {
	var mu sync.Mutex
	done := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		if o.Progress != nil {
			o.Progress(done, total)
		}
	}
}

// scenario of a measured run. What a prefix leaves over of its last block is
// never shared, so it counts as new.
func (o CompareOptions) scenario(k runKey) Scenario {
	w := cell(k.prefix, k.streams)
	if o.Base != nil {
		w = *o.Base
		w.Streams = k.streams
	}
	rest := 0
	if block := int(o.Profile.BlockTokens); block > 0 {
		rest = k.prefix % block
	}
	w.NewTokens += rest
	w.Prefixes = []PrefixClass{{Tokens: k.prefix - rest, Weight: 1}}
	return Scenario{Name: "measured", Profile: o.Profile, Workload: w}
}

func (o CompareOptions) simulate(ctx context.Context, k runKey, seed uint64) (Stats, error) {
	if err := ctx.Err(); err != nil {
		return Stats{}, err
	}
	f, err := newMeasured(ctx, o.scenario(k), k.setting, seed)
	if err != nil {
		return Stats{}, err
	}
	if err := f.AdvanceContext(ctx, cmp.Or(o.Duration, PublishedDuration)); err != nil {
		return Stats{}, err
	}
	return f.Stats(), nil
}

// newMeasured builds a fleet whose policy runs on the fleet's clock.
func newMeasured(ctx context.Context, s Scenario, setting Setting, seed uint64) (*Fleet, error) {
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
	f, err = NewContext(ctx, Options{Scenario: s, Seed: seed, Policy: policy, Start: epoch})
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
