package fleet

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"regexp"
	"time"
)

// The published matrix: public measurements of load, recompute and threshold
// policies on Qwen3-32B, 8xH100 (three reports of September 2026).
//
//go:embed data/published-matrix.csv data/published-mechanism.csv
var publishedFiles embed.FS

// PublishedDuration is the length of each published run.
const PublishedDuration = 300 * time.Second

// FittedReport is the report the published profile was fitted on; all others
// are held out.
const FittedReport = "crossover-2026-09-10"

// Measurement is one run of the matrix. Quantities that were not reported are
// nil.
type Measurement struct {
	Report       string
	PrefixTokens int
	Concurrency  int
	Setting      Setting

	RequestsPerSecond     float64
	OutputTokensPerSecond *float64
	TTFTMeanMS, TTFTP99MS *float64
	ITLMeanMS, ITLP99MS   *float64
	WaitingMean           *float64
	ExternalSharePercent  *float64

	// Mechanism is what was measured inside, for runs that have it.
	Mechanism *Mechanism
}

// Mechanism is what a run did inside.
type Mechanism struct {
	// GPUHitSharePercent of the prompt tokens.
	GPUHitSharePercent float64
	// LookupMean and LookupP90 are of the delays of asynchronous lookups, in
	// seconds.
	LookupMean, LookupP90 float64
	// ReadGiBps and WriteGiBps are the node's NVMe traffic.
	ReadGiBps, WriteGiBps float64
}

// matrixColumns is the header of the measurement format.
var matrixColumns = []string{
	"report", "prefix_tokens", "concurrency", "policy", "min_external_reusable_tokens", "max_waiting_requests",
	"requests_per_s", "output_tokens_per_s", "ttft_mean_ms", "ttft_p99_ms", "itl_mean_ms", "itl_p99_ms",
	"waiting_mean", "external_prompt_share_pct",
}

// PublishedMatrix returns the embedded measurements.
func PublishedMatrix() []Measurement {
	all, err := ReadMeasurements(published("data/published-matrix.csv"))
	if err == nil {
		err = addMechanism(all, published("data/published-mechanism.csv"))
	}
	if err != nil {
		panic(fmt.Errorf("embedded matrix: %w", err)) // covered by a test
	}
	return all
}

func published(name string) io.Reader {
	b, err := publishedFiles.ReadFile(name)
	if err != nil {
		panic(err) // embedded at build time
	}
	return bytes.NewReader(b)
}

// series is what a report or a profile may be called, so that its name can stand
// in a command line, a table and a file.
var series = regexp.MustCompile(`^[\pL\pN][\pL\pN ._:/@+-]{0,99}$`)

// checkName of a report or a profile.
func checkName(name string) error {
	if !series.MatchString(name) {
		return fmt.Errorf("%s: want 1 to 100 letters, digits, spaces and ._:/@+-, the first a letter or digit", clip(name))
	}
	return nil
}

// clip quotes a value for a message, which should stay readable whatever the
// value.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.*q...", most, s)
	}
	return fmt.Sprintf("%q", s)
}

// Limits of what can have been measured.
const (
	maxRate         = 1e6  // requests/s
	minRate         = 1e-4 // one in three hours
	maxTokensRate   = 1e9  // output tokens/s
	maxMilliseconds = 1e8  // a day
)

// runID is what two runs of a report must not have in common.
type runID struct {
	report string
	run    runKey
}

func (m Measurement) id() runID { return runID{m.Report, m.key()} }

func (m Measurement) String() string {
	return fmt.Sprintf("report %s, %d tokens, %d streams, %s", m.Report, m.PrefixTokens, m.Concurrency, m.Setting)
}

// check refuses what cannot have been measured, by the name of its column.
func (m Measurement) check() error {
	if err := checkName(m.Report); err != nil {
		return fmt.Errorf("report %w", err)
	}
	if err := m.Setting.check(); err != nil {
		return err
	}
	for _, q := range m.quantities() {
		if err := q.check(); err != nil {
			return err
		}
	}
	if err := tailAboveMean("ttft", m.TTFTMeanMS, m.TTFTP99MS); err != nil {
		return err
	}
	return tailAboveMean("itl", m.ITLMeanMS, m.ITLP99MS)
}

// quantity is a number of a measurement and its range.
type quantity struct {
	column    string
	value     *float64
	low, high float64
}

func (q quantity) check() error {
	if q.value != nil && !(*q.value >= q.low && *q.value <= q.high) {
		return fmt.Errorf("%s %.12g: want %.12g to %.12g", q.column, *q.value, q.low, q.high)
	}
	return nil
}

func (m Measurement) quantities() []quantity {
	prefix, streams := float64(m.PrefixTokens), float64(m.Concurrency)
	return []quantity{
		{"prefix_tokens", &prefix, 1, maxTraceTokens},
		{"concurrency", &streams, 1, maxStreams},
		{"requests_per_s", &m.RequestsPerSecond, minRate, maxRate},
		{"output_tokens_per_s", m.OutputTokensPerSecond, 0, maxTokensRate},
		{"ttft_mean_ms", m.TTFTMeanMS, 1e-3, maxMilliseconds},
		{"ttft_p99_ms", m.TTFTP99MS, 1e-3, maxMilliseconds},
		{"itl_mean_ms", m.ITLMeanMS, 0, maxMilliseconds},
		{"itl_p99_ms", m.ITLP99MS, 0, maxMilliseconds},
		{"waiting_mean", m.WaitingMean, 0, streams},
		{"external_prompt_share_pct", m.ExternalSharePercent, 0, 100},
	}
}

// Figures is how many numbers a fit has of the run: rates, times, shares, and
// what was measured inside.
func (m Measurement) Figures() int {
	n := 1 // requests per second
	for _, v := range []*float64{m.TTFTMeanMS, m.TTFTP99MS, m.ExternalSharePercent} {
		if v != nil {
			n++
		}
	}
	if m.Mechanism != nil {
		n += 5
	}
	return n
}

func tailAboveMean(of string, mean, tail *float64) error {
	if mean != nil && tail != nil && *tail < *mean {
		return fmt.Errorf("%s_p99_ms %v: want at least %s_mean_ms, %v", of, *tail, of, *mean)
	}
	return nil
}
