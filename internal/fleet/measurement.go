package fleet

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
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

// ReadMeasurements reads the published CSV format: the header
//
//	report,prefix_tokens,concurrency,policy,min_external_reusable_tokens,max_waiting_requests,requests_per_s,output_tokens_per_s,ttft_mean_ms,ttft_p99_ms,itl_mean_ms,itl_p99_ms,waiting_mean,external_prompt_share_pct
//
// and one closed-loop run a line, with empty fields for what was not measured.
// Policy is load, recompute or threshold; the two columns after it belong to
// threshold, where 0 waiting requests is no gate. Errors name the line.
func ReadMeasurements(r io.Reader) ([]Measurement, error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	if !slices.Equal(header, matrixColumns) {
		return nil, fmt.Errorf("read measurements: columns are %s; want %s", strings.Join(header, ","), strings.Join(matrixColumns, ","))
	}
	var all []Measurement
	for {
		fields, err := in.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read measurements: %w", err)
		}
		m, err := parseMeasurement(fields)
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("read measurements: line %d: %w", line, err)
		}
		all = append(all, m)
	}
}

func parseMeasurement(fields []string) (Measurement, error) {
	f := fieldReader{columns: matrixColumns, fields: fields}
	m := Measurement{
		Report:       fields[0],
		PrefixTokens: f.whole(1),
		Concurrency:  f.whole(2),
		Setting:      Setting{Policy: fields[3]},
	}
	switch m.Setting.Policy {
	case "load", "recompute":
	case "threshold":
		m.Setting.MinTokens, m.Setting.MaxWaiting = f.whole(4), f.whole(5)
	default:
		f.fail(fmt.Errorf("policy %q; allowed: load, recompute, threshold", fields[3]))
	}
	m.RequestsPerSecond = f.must(6)
	m.OutputTokensPerSecond = f.number(7)
	m.TTFTMeanMS, m.TTFTP99MS = f.number(8), f.number(9)
	m.ITLMeanMS, m.ITLP99MS = f.number(10), f.number(11)
	m.WaitingMean, m.ExternalSharePercent = f.number(12), f.number(13)
	if f.err == nil {
		f.fail(m.check())
	}
	return m, f.err
}

// check refuses what cannot have been measured.
func (m Measurement) check() error {
	switch {
	case m.Report == "":
		return errors.New("report is empty; name the series of measurements")
	case m.PrefixTokens < 1 || m.PrefixTokens > maxTraceTokens:
		return fmt.Errorf("prefix_tokens %d: want 1 to %d", m.PrefixTokens, maxTraceTokens)
	case m.Concurrency < 1 || m.Concurrency > maxStreams:
		return fmt.Errorf("concurrency %d: want 1 to %d streams", m.Concurrency, maxStreams)
	case m.Setting.Policy == "threshold" && m.Setting.MinTokens < 1:
		return fmt.Errorf("min_external_reusable_tokens %d: want at least 1", m.Setting.MinTokens)
	case !(m.RequestsPerSecond > 0) || math.IsInf(m.RequestsPerSecond, 0):
		return fmt.Errorf("requests_per_s %v: want a positive number", m.RequestsPerSecond)
	}
	return nil
}

// WriteMeasurements writes the format that ReadMeasurements reads.
func WriteMeasurements(w io.Writer, all []Measurement) error {
	out := csv.NewWriter(w)
	_ = out.Write(matrixColumns) // the writer keeps its first error
	for _, m := range all {
		tokens, waiting := "", ""
		if m.Setting.Policy == "threshold" {
			tokens, waiting = strconv.Itoa(m.Setting.MinTokens), strconv.Itoa(m.Setting.MaxWaiting)
		}
		_ = out.Write([]string{
			m.Report, strconv.Itoa(m.PrefixTokens), strconv.Itoa(m.Concurrency), m.Setting.Policy, tokens, waiting,
			field(&m.RequestsPerSecond), field(m.OutputTokensPerSecond), field(m.TTFTMeanMS), field(m.TTFTP99MS),
			field(m.ITLMeanMS), field(m.ITLP99MS), field(m.WaitingMean), field(m.ExternalSharePercent),
		})
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write measurements: %w", err)
	}
	return nil
}

func field(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

// fieldReader parses fields and keeps the first error.
type fieldReader struct {
	columns, fields []string
	err             error
}

func (f *fieldReader) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fieldReader) whole(i int) int {
	v, err := strconv.Atoi(f.fields[i])
	if err != nil || v < 0 {
		f.fail(fmt.Errorf("%s %q is not a whole number", f.columns[i], f.fields[i]))
	}
	return v
}

func (f *fieldReader) number(i int) *float64 {
	if f.fields[i] == "" {
		return nil
	}
	v, err := strconv.ParseFloat(f.fields[i], 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		f.fail(fmt.Errorf("%s %q is not a number from 0", f.columns[i], f.fields[i]))
		return nil
	}
	return &v
}

// must be a number.
func (f *fieldReader) must(i int) float64 {
	v := f.number(i)
	if v == nil {
		f.fail(fmt.Errorf("%s is empty", f.columns[i]))
		return 0
	}
	return *v
}
