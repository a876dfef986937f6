package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// Limits of files, in bytes, so that a wrong path cannot fill the memory.
const (
	maxMeasurementFile = 4 << 20
	maxProfileFile     = 1 << 20
	maxGuideLLMFile    = 512 << 20 // a report has every request in it
	maxStateFile       = 64 << 20
)

// compareOptions reads the files.
func (f *calibrateFlags) compareOptions(ctx context.Context) (fleet.CompareOptions, error) {
	o := fleet.CompareOptions{Profile: fleet.Published(), Measurements: fleet.PublishedMatrix(), Fitted: f.reports}
	if f.profile != "" {
		p, err := fromFile(ctx, f.profile, maxProfileFile, fleet.ReadProfile)
		if err != nil {
			return o, fmt.Errorf("--profile %s: %w", f.profile, err)
		}
		o.Profile = p
	}
	if f.measurements != "" {
		all, err := fromFile(ctx, f.measurements, maxMeasurementFile, fleet.ReadMeasurements)
		if err != nil {
			return o, fmt.Errorf("--measurements %s: %w", f.measurements, err)
		}
		o.Measurements = all
		if f.reports == nil {
			o.Fitted = reportsOf(all)
		}
	}
	if err := errors.Join(checkReports(f.reports, o.Measurements), f.runs.apply(&o)); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// fromFile reads at most so many bytes of a file. It does not wait for a pipe
// that stays silent once ctx has ended.
func fromFile[T any](ctx context.Context, path string, limit int64, read func(io.Reader) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		file, err := os.Open(path)
		if err != nil {
			done <- result{err: err}
			return
		}
		defer file.Close()
		value, err := read(&limited{file, limit, limit})
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return result{}.value, ctx.Err()
	}
}

// limited fails where io.LimitReader would end.
type limited struct {
	r           io.Reader
	left, limit int64
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left < 0 {
		return 0, fmt.Errorf("the file is larger than %d MiB", l.limit>>20)
	}
	if int64(len(b)) > l.left+1 {
		b = b[:l.left+1]
	}
	n, err := l.r.Read(b)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the file is larger than %d MiB", l.limit>>20)
	}
	return n, err
}

// inputError is the user's, unless it is that he ended the command.
func inputError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return usage(err)
}

func reportsOf(all []fleet.Measurement) []string {
	reports := []string{} // not nil, which would be the published one
	seen := make(map[string]bool)
	for _, m := range all {
		if !seen[m.Report] {
			seen[m.Report] = true
			reports = append(reports, m.Report)
		}
	}
	return reports
}

// checkReports names the reports there are.
func checkReports(wanted []string, all []fleet.Measurement) error {
	known := reportsOf(all)
	if wanted != nil && len(wanted) == 0 {
		wanted = []string{""}
	}
	for _, report := range wanted {
		if !slices.Contains(known, report) {
			if len(known) > 10 {
				known = append(known[:10], "...")
			}
			return fmt.Errorf("--reports %q is not among the measurements; allowed: %s", report, strings.Join(known, ", "))
		}
	}
	return nil
}

// Limits of what the runs may be.
const (
	maxCalibrationSeeds = 1000
	maxParallelRuns     = 1024
	maxRunTokens        = 1 << 20
	maxCorpusTokens     = 1 << 26
)

func (f runFlags) apply(o *fleet.CompareOptions) error {
	longest := 0
	for _, m := range o.Measurements {
		longest = max(longest, m.PrefixTokens)
	}
	err := errors.Join(
		within("seeds", f.seeds, 1, maxCalibrationSeeds),
		within("parallel", f.parallel, 1, maxParallelRuns),
		within("new-tokens", f.newTokens, 1, maxRunTokens),
		within("output-tokens", f.outputTokens, 1, maxRunTokens),
		within("corpus-tokens", f.corpusTokens, 1, maxCorpusTokens),
	)
	if f.duration < time.Second || f.duration > 24*time.Hour {
		err = errors.Join(err, fmt.Errorf("--duration %v: want 1s to 24h", f.duration))
	}
	if err == nil && f.corpusTokens < longest {
		err = fmt.Errorf("--corpus-tokens %d: want at least the longest prefix of the measurements, %d", f.corpusTokens, longest)
	}
	o.Seeds = seedsFrom(f.firstSeed, f.seeds)
	o.Duration = f.duration
	o.Parallel = f.parallel
	o.Base = &fleet.Workload{NewTokens: f.newTokens, OutputTokens: f.outputTokens, CorpusTokens: f.corpusTokens}
	return err
}

func within(flag string, value, low, high int) error {
	if value < low || value > high {
		return fmt.Errorf("--%s %d: want %d to %d", flag, value, low, high)
	}
	return nil
}

func seedsFrom(first uint64, n int) []uint64 {
	var seeds []uint64
	for i := range max(n, 0) {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds
}
