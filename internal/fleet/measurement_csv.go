package fleet

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxMeasurements is the most runs a measurement file may have.
const MaxMeasurements = 5000

// ReadMeasurements reads the published CSV format: the header
//
//	report,prefix_tokens,concurrency,policy,min_external_reusable_tokens,max_waiting_requests,requests_per_s,output_tokens_per_s,ttft_mean_ms,ttft_p99_ms,itl_mean_ms,itl_p99_ms,waiting_mean,external_prompt_share_pct
//
// and one closed-loop run a line, with empty fields for what was not measured.
// Policy is load, recompute or threshold; the two columns after it belong to
// threshold, where 0 waiting requests is no gate. A report has each run once.
// Errors name the line, the column, the value and what is allowed.
func ReadMeasurements(r io.Reader) ([]Measurement, error) {
	all, err := readMeasurements(csv.NewReader(withoutMark(r)))
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	return all, nil
}

func readMeasurements(in *csv.Reader) ([]Measurement, error) {
	in.ReuseRecord = true
	if err := readHeader(in); err != nil {
		return nil, err
	}
	var all []Measurement
	lines := make(map[runID]int)
	for {
		fields, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		m, err := parseMeasurement(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if first, known := lines[m.id()]; known {
			return nil, fmt.Errorf("line %d: %s is line %d again; give a repeated run a report of its own, or average the two", line, m, first)
		}
		if len(all) == MaxMeasurements {
			return nil, fmt.Errorf("line %d: more than %d runs", line, MaxMeasurements)
		}
		lines[m.id()] = line
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("no run below the header")
	}
	return all, nil
}

// withoutMark skips the byte order mark that spreadsheets write.
func withoutMark(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if start, _ := b.Peek(3); string(start) == "\uFEFF" {
		_, _ = b.Discard(3)
	}
	return b
}

func readHeader(in *csv.Reader) error {
	header, err := in.Read()
	switch {
	case err == io.EOF:
		err = errors.New("the file is empty")
	case err == nil && !slices.Equal(header, matrixColumns):
		err = fmt.Errorf("line 1 is %s", clip(strings.Join(header, ",")))
	case err == nil:
		return nil
	}
	return fmt.Errorf("%w; want the header %s", err, strings.Join(matrixColumns, ","))
}

func parseMeasurement(fields []string) (Measurement, error) {
	f := fieldReader{columns: matrixColumns, fields: fields}
	m := Measurement{
		Report:       strings.Clone(fields[0]), // a field keeps its whole line
		PrefixTokens: f.whole(1),
		Concurrency:  f.whole(2),
		Setting:      Setting{Policy: strings.Clone(fields[3])},
	}
	if m.Setting.Policy == "threshold" {
		m.Setting.MinTokens, m.Setting.MaxWaiting = f.whole(4), f.whole(5)
	} else {
		f.empty(4)
		f.empty(5)
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

// checkRepeats refuses what ReadMeasurements would.
func checkRepeats(all []Measurement) error {
	seen := make(map[runID]bool)
	for _, m := range all {
		if seen[m.id()] {
			return fmt.Errorf("%s is there twice; give a repeated run a report of its own, or average the two", m)
		}
		seen[m.id()] = true
	}
	return nil
}

// WriteMeasurements writes the format that ReadMeasurements reads.
func WriteMeasurements(w io.Writer, all []Measurement) error {
	if err := checkRepeats(all); err != nil {
		return fmt.Errorf("write measurements: %w", err)
	}
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

func (f *fieldReader) refuse(i int, why string) {
	f.fail(fmt.Errorf("%s %s %s", f.columns[i], clip(f.fields[i]), why))
}

func (f *fieldReader) whole(i int) int {
	v, err := strconv.ParseInt(f.fields[i], 10, 32)
	if err != nil || v < 0 {
		f.refuse(i, "is not a whole number from 0")
	}
	return int(v)
}

// empty must be what belongs to another policy.
func (f *fieldReader) empty(i int) {
	if f.fields[i] != "" {
		f.refuse(i, "belongs to policy threshold; leave it empty for "+clip(f.fields[3]))
	}
}

func (f *fieldReader) number(i int) *float64 {
	if f.fields[i] == "" {
		return nil
	}
	v, err := strconv.ParseFloat(f.fields[i], 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		f.refuse(i, "is not a number from 0")
		return nil
	}
	return &v
}

// must be a number.
func (f *fieldReader) must(i int) float64 {
	v := f.number(i)
	if v == nil {
		f.fail(fmt.Errorf("%s is empty; want a number", f.columns[i]))
		return 0
	}
	return *v
}
