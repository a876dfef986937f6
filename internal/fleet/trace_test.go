package fleet

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const smallTrace = `{"arrival_s": 0, "prefix_id": "a", "prefix_tokens": 1024, "new_tokens": 10, "output_tokens": 5}
{"arrival_s": 0.5, "prefix_id": 7, "prefix_tokens": 100, "new_tokens": 10, "output_tokens": 5}
{"arrival_s": 2, "prefix_id": "a", "prefix_tokens": 2048, "new_tokens": 10, "output_tokens": 5}
{"arrival_s": 4, "prefix_id": "a", "prefix_tokens": 512, "new_tokens": 10, "output_tokens": 5}
`

func TestTraceIsReplayed(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader(smallTrace))
	if err != nil {
		t.Fatal(err)
	}
	want := []TraceRequest{
		{0, 0, 1024, 10, 5}, {500 * time.Millisecond, 1, 100, 10, 5}, {2 * time.Second, 0, 2048, 10, 5}, {4 * time.Second, 0, 512, 10, 5},
	}
	if d := cmp.Diff(want, trace.Requests); d != "" {
		t.Fatal(d)
	}
	f, err := New(Options{Scenario: Scenario{Name: "trace", Profile: Published(), Workload: Workload{Trace: trace}}, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(2100 * time.Millisecond)
	if f.count.issued != 3 {
		t.Errorf("%d requests issued in 2.1 s; want 3", f.count.issued)
	}
	f.Advance(time.Minute)
	if f.count.completed != 4 || f.requests.inFlight() != 0 {
		t.Errorf("%d requests completed, %d in flight; want 4 and none", f.count.completed, f.requests.inFlight())
	}
	// The third finds the first's 1024 tokens, the fourth its 512.
	if hits := f.gpuHits(); hits != 1024+512 {
		t.Errorf("%v tokens found; want 1536", hits)
	}
}

func TestTraceStartsAgainAfterASwitch(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader(smallTrace))
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{Name: "trace", Profile: Published(), Workload: Workload{Trace: trace}}
	f := start(t, "1k-c4", loading, 1)
	for range 2 {
		f.Advance(3 * time.Second)
		if err := f.Switch(s); err != nil {
			t.Fatal(err)
		}
		issued := f.count.issued
		f.Advance(30 * time.Second)
		if n := f.count.issued - issued; n != 4 {
			t.Errorf("%d requests issued; want the trace's 4", n)
		}
	}
	if n := len(f.prefixes.traces[trace]); n != 2 {
		t.Errorf("%d prefixes for the trace; want 2", n)
	}
}

func TestTraceRefusals(t *testing.T) {
	good := `{"arrival_s": 1, "prefix_id": "a", "prefix_tokens": 64, "new_tokens": 1, "output_tokens": 1}` + "\n"
	for text, want := range map[string]string{
		"":                              "no requests",
		good + "\n" + good:              "line 2: is empty",
		good + "{}\n":                   "line 2: prefix_id",
		good + `{"prefix_id": 1}`:       "line 2: want all of arrival_s",
		good + "[1]":                    "line 2: a JSON array; want one JSON object",
		good + good[:20]:                "line 2: ends in the middle",
		good + good[:len(good)-1] + "1": "line 2: more than one",
		strings.Replace(good, "prefix_id", "prefix", 1):                       "line 1: json: unknown field",
		strings.Replace(good, `"a"`, "1.5", 1):                                "prefix_id 1.5",
		strings.Replace(good, `"a"`, "null", 1):                               "prefix_id null",
		strings.Replace(good, `"arrival_s": 1`, `"arrival_s": -1`, 1):         "arrival_s -1: want 0",
		strings.Replace(good, `"arrival_s": 1`, `"arrival_s": 1e9`, 1):        "arrival_s 1e+09: want 0",
		strings.Replace(good, `"new_tokens": 1`, `"new_tokens": 0`, 1):        "line 1: new_tokens 0: want 1 to",
		strings.Replace(good, `: 64`, `: -64`, 1):                             "prefix_tokens -64: want 0",
		good + strings.Replace(good, `"arrival_s": 1`, `"arrival_s": 0.5`, 1): "line 2: arrives at 500ms, before",
	} {
		_, err := ReadTrace(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want one with %q", text, err, want)
		}
	}
}

func TestTraceWorkloadRefusals(t *testing.T) {
	one := &Trace{Requests: []TraceRequest{{PrefixTokens: 64, NewTokens: 1, OutputTokens: 1}}}
	huge := &Trace{Requests: []TraceRequest{{PrefixTokens: 400000, NewTokens: 1, OutputTokens: 1}}}
	for want, w := range map[string]Workload{
		"excludes streams":                          {Trace: one, Streams: 1},
		"has no requests":                           {Trace: &Trace{}},
		"does not fit the profile's gpuCacheTokens": {Trace: huge},
		"chat: is closed-loop":                      {Chat: &Chat{Turns: 2, MaxTokens: 1000}, NewTokens: 1, OutputTokens: 1, Arrivals: Poisson(1)},
		"mean turns 0.5":                            {Chat: &Chat{Turns: 0.5, MaxTokens: 1000}, NewTokens: 1, OutputTokens: 1, Streams: 1},
		"do not hold a first":                       {Chat: &Chat{Turns: 2, MaxTokens: 10}, NewTokens: 10, OutputTokens: 1, Streams: 1},
		"opening of -1":                             {Chat: &Chat{Turns: 2, MaxTokens: 10, OpeningTokens: -1}, NewTokens: 1, OutputTokens: 1, Streams: 1},
		"excludes prefix classes":                   {Chat: &Chat{Turns: 2, MaxTokens: 10}, Prefixes: []PrefixClass{{Tokens: 64, Weight: 1}}, NewTokens: 1, OutputTokens: 1, Streams: 1},
		"zipf: -1":                                  {Zipf: -1, Prefixes: []PrefixClass{{Tokens: 64, Weight: 1, Count: 1}}, NewTokens: 1, OutputTokens: 1, Streams: 1},
		"think time: -1s":                           {Think: -time.Second, Prefixes: []PrefixClass{{Tokens: 64, Weight: 1, Count: 1}}, NewTokens: 1, OutputTokens: 1, Streams: 1},
	} {
		err := Scenario{Name: "bad", Profile: Published(), Workload: w}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
}

func TestMooncakePrefixesAreWhatIsShared(t *testing.T) {
	trace, err := ReadMooncake(strings.NewReader(
		`{"timestamp": 0, "input_length": 1600, "output_length": 5, "hash_ids": [0, 1, 2, 3]}
{"timestamp": 10, "input_length": 2600, "output_length": 5, "hash_ids": [0, 1, 4, 5, 6, 7]}
{"timestamp": 20, "input_length": 2600, "output_length": 0, "hash_ids": [0, 1, 4, 5, 6, 8]}
{"timestamp": 30, "input_length": 1024, "output_length": 5, "hash_ids": [0, 9]}
{"timestamp": 40, "input_length": 1024, "output_length": 5, "hash_ids": [0, 9]}
{"timestamp": 50, "input_length": 100, "output_length": 5, "hash_ids": [10]}
{"timestamp": 60, "input_length": 100, "output_length": 5, "hash_ids": []}
`))
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := []TraceRequest{
		{0, 0, 1024, 576, 5},      // [0 1] on the main chain
		{10 * ms, 0, 2560, 40, 5}, // [0 1 4 5 6]
		{20 * ms, 0, 2560, 40, 1}, // the same
		{30 * ms, 1, 1023, 1, 5},  // [0 9] leaves the main chain
		{40 * ms, 1, 1023, 1, 5},  // one token is always computed
		{50 * ms, 2, 0, 100, 5},   // shared with nobody
		{60 * ms, 3, 0, 100, 5},
	}
	if d := cmp.Diff(want, trace.Requests); d != "" {
		t.Error(d)
	}
}

func TestMooncakeRefusals(t *testing.T) {
	good := `{"timestamp": 5, "input_length": 512, "output_length": 1, "hash_ids": [1]}` + "\n"
	for text, want := range map[string]string{
		"":                                   "no requests",
		good + "{}":                          "line 2: want all of timestamp",
		good + "nil":                         "line 2: invalid",
		strings.Replace(good, "512", "0", 1): "input_length 0",
		strings.Replace(good, "[1]", "[1, 2]", 1):                     "line 1: hash_ids: 2 for an input of 512",
		strings.Replace(good, "[1]", `["1"]`, 1):                      "line 1: hash_ids: a JSON string; want whole numbers",
		good + strings.Replace(good, ": 5", ": 4", 1):                 "line 2: timestamp 4: before",
		strings.Replace(good, "timestamp", "time", 1):                 "unknown field",
		strings.Replace(good, `"output_length": 1, `, "", 1):          "want all of",
		strings.Replace(good, `"timestamp": 5`, `"timestamp": -5`, 1): "timestamp -5: want 0",
	} {
		_, err := ReadMooncake(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want one with %q", text, err, want)
		}
	}
}

// fuzzTrace checks that what a reader accepts can be replayed.
func fuzzTrace(t *testing.T, trace *Trace, err error) {
	if err != nil {
		return
	}
	w := Workload{Trace: trace}
	if err := w.Validate(); err != nil {
		t.Fatalf("accepted, but not valid: %v", err)
	}
	s := Scenario{Name: "fuzz", Profile: Published(), Workload: w}
	if s.Validate() != nil || len(trace.Requests) > 50 || trace.longest() > 20000 || trace.Requests[len(trace.Requests)-1].Arrival > time.Minute {
		return
	}
	f, err := New(Options{Scenario: s, Policy: noPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Hour)
	if n := int(f.count.completed); n != len(trace.Requests) && trace.longest() < 5000 {
		t.Fatalf("%d requests completed of %d", n, len(trace.Requests))
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(smallTrace))
	f.Add([]byte(`{"arrival_s": 1e-9, "prefix_id": 0, "prefix_tokens": 0, "new_tokens": 1, "output_tokens": 1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		trace, err := ReadTrace(bytes.NewReader(b))
		fuzzTrace(t, trace, err)
	})
}

func FuzzReadMooncake(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 1600, "output_length": 5, "hash_ids": [0, 1, 2, 3]}
{"timestamp": 10, "input_length": 2600, "output_length": 5, "hash_ids": [0, 1, 4, 5, 6, 7]}`))
	f.Add([]byte(`{"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [-1]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		trace, err := ReadMooncake(bytes.NewReader(b))
		fuzzTrace(t, trace, err)
	})
}

func TestFirstLineTellsTheFormat(t *testing.T) {
	own := `{"arrival_s": 0.5, "prefix_id": "a", "prefix_tokens": 64, "new_tokens": 10, "output_tokens": 4}`
	mooncake := `{"timestamp": 500, "input_length": 74, "output_length": 4, "hash_ids": [1]}`
	for text, want := range map[string]string{
		own + "\n" + own:           "",
		mooncake + "\n" + mooncake: "",
		own + "\n" + mooncake:      `read trace: line 2: json: unknown field "timestamp"`,
		mooncake + "\n" + own:      `read Mooncake trace: line 2: json: unknown field "arrival_s"`,
		"":                         "read trace: it has no requests",
		"requests: 5":              "a line of kvtuner's format is",
	} {
		trace, err := ReadAnyTrace(strings.NewReader(text))
		if want == "" {
			if err != nil || len(trace.Requests) != 2 || trace.Length() != 500*time.Millisecond {
				t.Errorf("%s: %+v, %v", text, trace, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", text, err, want)
		}
	}
}
