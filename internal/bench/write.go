package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Formats a Result can be written in.
var formats = []struct {
	name  string
	write func(io.Writer, Result) error
}{
	{"table", WriteTable},
	{"json", WriteJSON},
	{"csv", WriteCSV},
}

// Writer of a format; an unknown name is an error that lists what is allowed.
func Writer(format string) (func(io.Writer, Result) error, error) {
	var names []string
	for _, f := range formats {
		if f.name == format {
			return f.write, nil
		}
		names = append(names, f.name)
	}
	return nil, fmt.Errorf("format %q is not known; allowed: %s", format, strings.Join(names, ", "))
}

// WriteJSON writes rows and summary as one indented object.
func WriteJSON(w io.Writer, r Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// csvColumns in order; the names are those of the JSON rows.
var csvColumns = []struct {
	name string
	of   func(Row) string
}{
	{"scenario", func(r Row) string { return r.Scenario }},
	{"schedule", func(r Row) string { return r.Schedule }},
	{"phase", func(r Row) string {
		if r.Phase == 0 {
			return ""
		}
		return strconv.Itoa(r.Phase)
	}},
	{"policy", func(r Row) string { return r.Policy }},
	{"pair", func(r Row) string { return r.Pair }},
	{"seed", func(r Row) string { return strconv.FormatUint(r.Seed, 10) }},
	{"duration_s", func(r Row) string { return r.Duration.String() }},
	{"requests", func(r Row) string { return strconv.Itoa(r.Requests) }},
	{"requests_per_s", func(r Row) string { return r.RequestsPerS.String() }},
	{"output_tokens_per_s", func(r Row) string { return r.OutputTokensPerS.String() }},
	{"ttft_mean_s", func(r Row) string { return r.TTFTMean.String() }},
	{"ttft_p50_s", func(r Row) string { return r.TTFTP50.String() }},
	{"ttft_p99_s", func(r Row) string { return r.TTFTP99.String() }},
	{"itl_mean_s", func(r Row) string { return r.ITLMean.String() }},
	{"e2e_mean_s", func(r Row) string { return r.E2EMean.String() }},
	{"waiting_mean", func(r Row) string { return r.WaitingMean.String() }},
	{"external_prompt_share", func(r Row) string { return r.ExternalPromptShare.String() }},
	{efficiencyName, func(r Row) string {
		if r.Efficiency == nil {
			return ""
		}
		return r.Efficiency.String()
	}},
	{"moves", func(r Row) string { return strconv.Itoa(r.Moves) }},
	{"trials", func(r Row) string { return strconv.Itoa(r.Trials) }},
	{"aborted", func(r Row) string { return strconv.Itoa(r.Aborted) }},
}

// WriteCSV writes the rows with a header; what was not measured is empty.
func WriteCSV(w io.Writer, r Result) error {
	out := csv.NewWriter(w)
	record := make([]string, len(csvColumns))
	for i, c := range csvColumns {
		record[i] = c.name
	}
	if err := out.Write(record); err != nil {
		return err
	}
	for _, row := range r.Rows {
		for i, c := range csvColumns {
			record[i] = c.of(row)
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
