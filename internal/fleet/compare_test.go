package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestPublishedMatrixIsWhole(t *testing.T) {
	runs := PublishedMatrix()
	mechanisms, held := 0, 0
	for _, m := range runs {
		if m.Mechanism != nil {
			mechanisms++
		}
		if m.Report != FittedReport {
			held++
		}
	}
	if len(runs) != 64 || held != 40 || mechanisms != 12 {
		t.Errorf("%d runs, %d held out, %d with mechanism; want 64, 40, 12", len(runs), held, mechanisms)
	}
	last := runs[63]
	if last.Setting != threshold || last.PrefixTokens != 8192 || last.RequestsPerSecond != 12.087 || *last.TTFTMeanMS != 632 {
		t.Errorf("last run read as %+v", last)
	}
}

func TestMeasurementRefusals(t *testing.T) {
	header := strings.Join(matrixColumns, ",") + "\n"
	cases := []struct{ text, want string }{
		{"", "read measurements: the file is empty; want the header report,prefix_tokens"},
		{header, "no run below the header"},
		{"report,policy\n", `line 1 is "report,policy"; want the header`},
		{strings.Repeat("x", 1000) + "\n", `xx"...; want the header`},
		{header + "r,1024,16,load,,,-1,,,,,,,\n", `line 2: requests_per_s "-1"`},
		{header + "r,1024,16,load,,,,,,,,,,\n", "line 2: requests_per_s is empty; want a number"},
		{header + "r,1024,16,load,,,NaN,,,,,,,\n", `requests_per_s "NaN"`},
		{header + "r,1024,16,load,,,0,,,,,,,\n", "requests_per_s 0: want 0.0001 to 1000000"},
		{header + "r,1024,16,load,,,1e300,,,,,,,\n", "requests_per_s 1e+300: want 0.0001 to 1000000"},
		{header + "r,1024,16,load,,,1,1e300,,,,,,\n", "output_tokens_per_s 1e+300: want 0 to"},
		{header + "r,1024,16,load,,,1,,0,,,,,\n", "ttft_mean_ms 0: want 0.001 to"},
		{header + "r,1024,16,load,,,1,,60,50,,,,\n", "ttft_p99_ms 50: want at least ttft_mean_ms, 60"},
		{header + "r,1024,16,load,,,1,,,,9,8,,\n", "itl_p99_ms 8: want at least itl_mean_ms, 9"},
		{header + "r,1024,16,load,,,1,,,,,,17,\n", "waiting_mean 17: want 0 to 16"},
		{header + "r,1024,16,load,,,1,,,,,,,500\n", "external_prompt_share_pct 500: want 0 to 100"},
		{header + "r,1k,16,load,,,1,,,,,,,\n", `prefix_tokens "1k"`},
		{header + "r,0,16,load,,,1,,,,,,,\n", "prefix_tokens 0: want 1 to 16777216"},
		{header + "r,1024,5000,load,,,1,,,,,,,\n", "concurrency 5000: want 1 to 4096"},
		{header + "r,1024,16,guess,,,1,,,,,,,\n", `policy "guess"; allowed: load, recompute, threshold`},
		{header + "r,1024,16,threshold,,8,1,,,,,,,\n", `min_external_reusable_tokens ""`},
		{header + "r,1024,16,threshold,0,8,1,,,,,,,\n", "min_external_reusable_tokens 0: want 1 to"},
		{header + "r,1024,16,threshold,1,2000000,1,,,,,,,\n", "max_waiting_requests 2000000: want 0, no gate, to 1048576"},
		{header + "r,1024,16,load,1024,,1,,,,,,,\n", `line 2: min_external_reusable_tokens "1024" belongs to policy threshold; leave it empty for "load"`},
		{header + "r,1024,16,recompute,,8,1,,,,,,,\n", `max_waiting_requests "8" belongs to policy threshold`},
		{header + "a|b,1024,16,load,,,1,,,,,,,\n", `line 2: report "a|b": want 1 to 100 letters`},
		{header + "\"a\nb\",1024,16,load,,,1,,,,,,,\n", `line 2: report "a\nb": want`},
		{header + ",1024,16,load,,,1,,,,,,,\n", `report "": want`},
		{header + "r,1024,16,load,,,1,,,,,,,\nr,1024,16,load,,,2,,,,,,,\n", "line 3: report r, 1024 tokens, 16 streams, load is line 2 again"},
		{header + "r,1024\n", "wrong number of fields"},
		{header + manyRuns(MaxMeasurements+1), "line 5002: more than 5000 runs"},
	}
	for _, c := range cases {
		_, err := ReadMeasurements(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v; want one with %q", c.text, err, c.want)
		}
	}
}

// manyRuns are lines of one report.
func manyRuns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r,%d,%d,load,,,1,,,,,,,\n", 64*(1+i%64), 1+i/64)
	}
	return b.String()
}

func TestSpreadsheetsMarkIsNoColumn(t *testing.T) {
	text := "\uFEFF" + strings.Join(matrixColumns, ",") + "\r\nr,1024,16,load,,,1,,,,,,,\r\n"
	if all, err := ReadMeasurements(strings.NewReader(text)); err != nil || len(all) != 1 {
		t.Errorf("read %v, %v", all, err)
	}
}

func TestMechanismRefusals(t *testing.T) {
	header := strings.Join(mechanismColumns, ",") + "\n"
	rest := ",9,39,52,0.1,0.2,0.3,0.2,0.6,49,0.1,2\n"
	for text, want := range map[string]string{
		"":                                       "the first line must be",
		"report\n":                               "the first line must be",
		header + "r,2048,16,load,9\n":            "wrong number of fields",
		header + "r,2048,16,load" + rest:         "",
		header + "r,2048,x,load" + rest:          `line 2: concurrency "x"`,
		header + "r,4096,16,load" + rest:         "line 2: no run of r, 4096 tokens",
		header + "r,2048,16,load,9,,1,,,,,,,,\n": "line 2: hbm_share_pct is empty",
	} {
		runs := []Measurement{{Report: "r", PrefixTokens: 2048, Concurrency: 16, Setting: loading}}
		err := addMechanism(runs, strings.NewReader(text))
		if want == "" {
			if err != nil || runs[0].Mechanism == nil || runs[0].Mechanism.GPUHitSharePercent != 39 {
				t.Errorf("%v, mechanism %+v; want 39%% GPU hits", err, runs[0].Mechanism)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
}

// seedCells are the cells both held-out reports measured.
var seedCells = []struct {
	prefix, streams int
	loadWins        bool
}{
	{1024, 64, true}, {2048, 64, false}, {4096, 32, true}, {8192, 32, false}, {8192, 64, false},
}

// The shipped profile must tell the published story: which policy wins where,
// and that always loading collapses at 2K/C64 and 8K.
func TestPublishedStory(t *testing.T) {
	var runs []Measurement
	for _, c := range seedCells {
		for _, s := range []Setting{loading, recompute, threshold} {
			runs = append(runs, Measurement{Report: "story", PrefixTokens: c.prefix, Concurrency: c.streams, Setting: s, RequestsPerSecond: 1})
		}
	}
	c, err := Compare(t.Context(), CompareOptions{Profile: Published(), Measurements: runs, Seeds: []uint64{11, 12}})
	if err != nil {
		t.Fatal(err)
	}
	for i, cell := range seedCells {
		load, never, static := c.Runs[3*i].Simulated, c.Runs[3*i+1].Simulated, c.Runs[3*i+2].Simulated
		if wins := load.RequestsPerSecond > never.RequestsPerSecond; wins != cell.loadWins {
			t.Errorf("%d/C%d: load %.2f against recompute %.2f requests/s; load should win: %v", cell.prefix, cell.streams, load.RequestsPerSecond, never.RequestsPerSecond, cell.loadWins)
		}
		if best := max(load.RequestsPerSecond, never.RequestsPerSecond); static.RequestsPerSecond < 0.98*best {
			t.Errorf("%d/C%d: 1024+8 serves %.2f requests/s; best %.2f", cell.prefix, cell.streams, static.RequestsPerSecond, best)
		}
		if collapsed := load.TTFTP99 > 8; collapsed == cell.loadWins {
			t.Errorf("%d/C%d: load has a p99 TTFT of %.1f s; collapse: %v", cell.prefix, cell.streams, load.TTFTP99, !cell.loadWins)
		}
		if other := max(never.TTFTP99, static.TTFTP99); !cell.loadWins && load.TTFTP99 < 3*other {
			t.Errorf("%d/C%d: load has a p99 TTFT of %.1f s; the others up to %.1f s", cell.prefix, cell.streams, load.TTFTP99, other)
		}
	}
}

func TestOrderingsTolerateTies(t *testing.T) {
	run := func(published, simulated float64) Run {
		return Run{Published: Measurement{RequestsPerSecond: published}, Simulated: Stats{RequestsPerSecond: simulated}}
	}
	cases := []struct {
		a, b       Run
		tie, right bool
	}{
		{run(10, 10), run(11, 11), false, true},
		{run(10, 11), run(11, 10), false, false},
		{run(10, 10), run(10.1, 9.8), true, true},
		{run(10, 10), run(10.1, 10.4), true, false},
	}
	for _, c := range cases {
		o := compareOrder(&c.a, &c.b)
		if o.Right != c.right || o.Tie != c.tie {
			t.Errorf("%v and %v, %v and %v: %+v", c.a.Published.RequestsPerSecond, c.b.Published.RequestsPerSecond, c.a.Simulated.RequestsPerSecond, c.b.Simulated.RequestsPerSecond, o)
		}
	}
}

// Pairs are those that comparing all runs with all others finds.
func TestPairsAreOfOneCellAndReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []Run
		for range rapid.IntRange(0, 40).Draw(t, "runs") {
			runs = append(runs, Run{Published: Measurement{
				Report:       rapid.SampledFrom([]string{"a", "b"}).Draw(t, "report"),
				PrefixTokens: rapid.SampledFrom([]int{1024, 2048}).Draw(t, "prefix"),
				Concurrency:  rapid.SampledFrom([]int{16, 32}).Draw(t, "streams"),
				Setting:      Setting{Policy: rapid.SampledFrom([]string{"load", "recompute", "threshold"}).Draw(t, "policy")},
			}})
		}
		want := make(map[[2]*Run]bool)
		for i := range runs {
			for j := range i {
				p, q := runs[j].Published, runs[i].Published
				thresholds := p.Setting.Policy == "threshold" && q.Setting.Policy == "threshold"
				if p.Report == q.Report && p.PrefixTokens == q.PrefixTokens && p.Concurrency == q.Concurrency && !thresholds {
					want[[2]*Run{&runs[j], &runs[i]}] = true
				}
			}
		}
		n := 0
		for a, b := range pairs(runs) {
			if n++; !want[[2]*Run{a, b}] {
				t.Fatalf("compares %s with %s", a.Published, b.Published)
			}
		}
		if n != len(want) {
			t.Fatalf("%d pairs; want %d", n, len(want))
		}
	})
}

// A prefix shares its whole blocks; the rest of it is computed each time.
func TestPrefixNeedNotEndWithABlock(t *testing.T) {
	o := CompareOptions{Profile: Published(), Seeds: []uint64{1}, Duration: time.Second}
	for _, base := range []*Workload{nil, {NewTokens: 256, OutputTokens: 128, CorpusTokens: 1 << 21}} {
		o.Base = base
		s := o.scenario(runKey{prefix: 1000, streams: 4, setting: loading})
		if got := s.Workload.Prefixes[0].Tokens; got != 960 || s.Workload.NewTokens != 296 {
			t.Errorf("%d shared and %d new tokens; want 960 and 296", got, s.Workload.NewTokens)
		}
	}
}

func TestCompareEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := CompareOptions{
		Profile: Published(), Measurements: PublishedMatrix()[:2], Seeds: []uint64{1}, Duration: time.Hour, Parallel: 1,
		Progress: func(int, int) { cancel() },
	}
	if _, err := Compare(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want the cancellation", err)
	}
	s := o.scenario(o.Measurements[0].key())
	if _, err := newMeasured(ctx, s, loading, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v while the caches are warmed; want the cancellation", err)
	}
	f, err := newMeasured(t.Context(), s, loading, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AdvanceContext(ctx, 24*time.Hour); !errors.Is(err, context.Canceled) || f.Now().Sub(f.start) > time.Hour {
		t.Errorf("error %v after %v; want the cancellation at once", err, f.Now().Sub(f.start))
	}
}

func TestOrderingsArePairedBySeed(t *testing.T) {
	run := func(rates ...float64) Run {
		r := Run{Published: Measurement{RequestsPerSecond: 1}}
		for _, v := range rates {
			r.BySeed = append(r.BySeed, Stats{RequestsPerSecond: v})
		}
		return r
	}
	a, b := run(10, 20), run(5, 10)
	if o := compareOrder(&a, &b); o.Spread != 0 {
		t.Errorf("spread %v of a ratio that is always two", o.Spread)
	}
	got := a.Spread(func(s Stats) float64 { return s.RequestsPerSecond })
	if want := math.Sqrt(50) / 15; math.Abs(got-want) > 1e-12 {
		t.Errorf("spread %v of 10 and 20; want %v", got, want)
	}
	if one := run(10).Spread(func(s Stats) float64 { return s.RequestsPerSecond }); !math.IsNaN(one) {
		t.Errorf("spread %v of one seed", one)
	}
}

var asFloat = cmp.Transformer("float64", func(f Figure) float64 { return float64(f) })

func TestErrorsAreGeometricMeans(t *testing.T) {
	v := func(v float64) *float64 { return &v }
	runs := []Run{
		{
			Fitted:    true,
			Published: Measurement{RequestsPerSecond: 10, TTFTMeanMS: v(100), TTFTP99MS: v(9000), ExternalSharePercent: v(20)},
			Simulated: Stats{RequestsPerSecond: 11, TTFTMean: 0.1, TTFTP99: 90, ExternalPromptShare: 0.24},
		},
		{
			Fitted:    true,
			Published: Measurement{PrefixTokens: 1, RequestsPerSecond: 10, TTFTP99MS: v(20000), ExternalSharePercent: v(20)},
			Simulated: Stats{RequestsPerSecond: 10, TTFTP99: 10, ExternalPromptShare: 0.14},
		},
		{Published: Measurement{Report: "other", RequestsPerSecond: 10, TTFTMeanMS: v(100)}, Simulated: Stats{RequestsPerSecond: 5, TTFTMean: 0.2}},
	}
	want := FitErrors{
		Runs: 2, ThroughputError: Figure(math.Sqrt(1.1) - 1), ShareError: 5, ShareWorst: 6, ShareWithin: 1, ShareTotal: 2,
		CollapseFactor: 2, CollapseTotal: 1,
	}
	if d := cmp.Diff(want, fitErrors(runs, true), asFloat, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Error(d)
	}
	none := Figure(math.NaN())
	want = FitErrors{Runs: 1, ThroughputError: 1, TTFTError: 1, ShareError: none, ShareWorst: none, CollapseFactor: none}
	if d := cmp.Diff(want, fitErrors(runs, false), asFloat, cmpopts.EquateApprox(1e-9, 0), cmpopts.EquateNaNs()); d != "" {
		t.Error(d)
	}
}

func TestComparisonIsTheSameOnAnyNumberOfCores(t *testing.T) {
	o := CompareOptions{Profile: Published(), Measurements: PublishedMatrix()[:6], Seeds: []uint64{1, 2}, Duration: 20 * time.Second, Parallel: 1}
	calls := 0
	o.Progress = func(done, total int) {
		if calls++; done != calls || total != 12 {
			t.Errorf("call %d: %d of %d done", calls, done, total)
		}
	}
	one, err := Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Parallel, o.Progress = 4, nil
	four, err := Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(one, four, asFloat, cmpopts.EquateNaNs()); d != "" || calls != 12 {
		t.Errorf("%d calls; %s", calls, d)
	}
}

func TestCompareRefusals(t *testing.T) {
	runs := PublishedMatrix()[:1]
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for want, o := range map[string]CompareOptions{
		"a prefix shorter than a block of 64": {Profile: Published(), Measurements: []Measurement{{Report: "r", PrefixTokens: 63, Concurrency: 1, Setting: loading, RequestsPerSecond: 1}}, Seeds: []uint64{1}},
		"are too many":                        {Profile: Published(), Measurements: runs, Seeds: make([]uint64, maxSimulations+1)},
		"no measurements":                     {Profile: Published(), Seeds: []uint64{1}},
		"at least one seed":                   {Profile: Published(), Measurements: runs},
		"duration -1s":                        {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Duration: -time.Second},
		`report "other" is not among the measurements, which have crossover-2026-09-10`: {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Fitted: []string{"other"}},
		`name "": want 1 to 100 letters`:                                                {Measurements: runs, Seeds: []uint64{1}},
		"output tokens: 0":                                                              {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Base: &Workload{CorpusTokens: 1 << 20, NewTokens: 1}},
	} {
		if _, err := Compare(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	if _, err := Compare(cancelled, CompareOptions{Profile: Published(), Measurements: runs, Seeds: []uint64{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after cancellation", err)
	}
}
