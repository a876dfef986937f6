package fleet

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readGuideLLM(t *testing.T, name string, o GuideLLMOptions) ([]Measurement, error) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return ReadGuideLLM(f, o)
}

func TestGuideLLMReports(t *testing.T) {
	v := func(v float64) *float64 { return &v }
	o := GuideLLMOptions{Report: "mine", Setting: threshold}
	want := []Measurement{
		{
			Report: "mine", PrefixTokens: 2048, Concurrency: 16, Setting: threshold, RequestsPerSecond: 7.25,
			OutputTokensPerSecond: v(928), TTFTMeanMS: v(150.5), TTFTP99MS: v(230), ITLMeanMS: v(14), ITLP99MS: v(21),
		},
		{
			Report: "mine", PrefixTokens: 2048, Concurrency: 1, Setting: threshold, RequestsPerSecond: 0.5,
			OutputTokensPerSecond: v(64),
		},
	}
	for _, name := range []string{"guidellm-0.5.json", "guidellm-0.7.json"} {
		got, err := readGuideLLM(t, name, o)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	o.PrefixTokens = 1024
	got, err := readGuideLLM(t, "guidellm-0.3.json", o)
	if err != nil {
		t.Fatal(err)
	}
	want = want[:1]
	want[0].PrefixTokens = 1024
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	// What was read can be written and read again.
	var b bytes.Buffer
	if err := WriteMeasurements(&b, got); err != nil {
		t.Fatal(err)
	}
	again, err := ReadMeasurements(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, again); d != "" {
		t.Error(d)
	}
}

func TestGuideLLMRefusals(t *testing.T) {
	benchmark := func(strategy, metrics string) string {
		return `{"benchmarks": [{"config": {"strategy": ` + strategy + `}, "metrics": {` + metrics + `}}]}`
	}
	rate := `"requests_per_second": {"successful": {"mean": 5, "count": 10}}`
	streams := `{"type_": "concurrent", "streams": 4}`
	for _, c := range []struct {
		text, want string
		prefix     int
		layout     bool
	}{
		{"", "the file is empty", 64, true},
		{"{", "ends in the middle", 64, true},
		{"[]", "cannot unmarshal", 64, true},
		{`{"benchmarks": []}`, "no benchmarks", 64, true},
		{`{"results": [1]}`, "no benchmarks", 64, true},
		{`{"benchmarks": [{}]}`, "benchmark 1: not the JSON report of GuideLLM 0.3 to 0.7: it has neither", 64, true},
		{benchmark(streams, ""), "no metrics.requests_per_second", 64, true},
		{benchmark(streams, `"requests_per_second": {"successful": {"mean": 0, "count": 0}}`), "no request succeeded", 64, false},
		{benchmark(`{"type_": "poisson", "rate": 5}`, rate), `strategy "poisson" is not closed loop`, 64, false},
		{benchmark(`{"type_": "throughput"}`, rate), "not closed loop", 64, false},
		{benchmark(`{"type_": "concurrent", "streams": 0}`, rate), "concurrency 0", 64, false},
		{strings.Replace(benchmark(streams, rate), "[{", "["+strings.TrimSuffix(strings.SplitN(benchmark(streams, rate), "[", 2)[1], "]}")+", {", 1), "report r, 64 tokens, 4 streams, load is there twice", 64, false},
		{benchmark(streams, rate), "does not say how long", 0, false},
		{benchmark(streams, rate+`, "prompt_token_count": {"successful": {"mean": 60}}`), "a prefix of 64 tokens in prompts of 60", 64, false},
		{strings.Replace(benchmark(streams, rate), "{", `{"args": {"data": ["prefix_tokens=64", "prefix_tokens=128"]}, `, 1), "prefixes of 64 and of 128", 0, false},
	} {
		_, err := ReadGuideLLM(strings.NewReader(c.text), GuideLLMOptions{Report: "r", Setting: loading, PrefixTokens: c.prefix})
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrGuideLLM) != c.layout {
			t.Errorf("%q: error %v; want one with %q, about the layout: %v", c.text, err, c.want, c.layout)
		}
	}
}

func TestSettingsAreReadAsWritten(t *testing.T) {
	for _, s := range []Setting{loading, recompute, threshold, {Policy: "threshold", MinTokens: 1}} {
		if got, err := ParseSetting(s.String()); err != nil || got != s {
			t.Errorf("%s read as %v, %v", s, got, err)
		}
	}
	for _, text := range []string{"", "threshold", "1024", "0+8", "1+-1", "1+2+3", "x+1"} {
		if _, err := ParseSetting(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func FuzzReadGuideLLM(f *testing.F) {
	metrics := `"metrics": {"requests_per_second": {"successful": {"mean": 5}}, "time_to_first_token_ms": {"successful": {"mean": 1, "count": 0}}}`
	f.Add([]byte(`{"benchmarks": [{"config": {"strategy": {"type_": "concurrent", "streams": 4}, "requests": "prefix_tokens=64"}, ` + metrics + `}]}`))
	f.Add([]byte(`{"args": {"prefix_tokens": 64}, "benchmarks": [{"args": {"strategy": {"type_": "synchronous"}}, ` + metrics + `}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := ReadGuideLLM(bytes.NewReader(b), GuideLLMOptions{Report: "r", Setting: loading})
		if err != nil {
			return
		}
		fuzzMeasurements(t, all)
	})
}

func FuzzReadMeasurements(f *testing.F) {
	b, err := publishedFiles.ReadFile("data/published-matrix.csv")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:1000])
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := ReadMeasurements(bytes.NewReader(b))
		if err != nil {
			return
		}
		fuzzMeasurements(t, all)
	})
}

// fuzzMeasurements checks that accepted measurements survive being written.
func fuzzMeasurements(t *testing.T, all []Measurement) {
	var b bytes.Buffer
	if err := WriteMeasurements(&b, all); err != nil {
		t.Fatal(err)
	}
	again, err := ReadMeasurements(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(all, again); d != "" {
		t.Fatal(d)
	}
}
