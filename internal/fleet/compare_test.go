package fleet

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		{"", "read measurements"},
		{"report,policy\n", "columns are report,policy"},
		{header + "r,1024,16,load,,,-1,,,,,,,\n", `line 2: requests_per_s "-1"`},
		{header + "r,1024,16,load,,,,,,,,,,\n", "line 2: requests_per_s is empty"},
		{header + "r,1024,16,load,,,NaN,,,,,,,\n", `requests_per_s "NaN"`},
		{header + "r,1k,16,load,,,1,,,,,,,\n", `prefix_tokens "1k"`},
		{header + "r,1024,16,guess,,,1,,,,,,,\n", `policy "guess"`},
		{header + "r,1024,16,threshold,,8,1,,,,,,,\n", `min_external_reusable_tokens ""`},
		{header + "r,1024\n", "wrong number of fields"},
	}
	for _, c := range cases {
		_, err := ReadMeasurements(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v; want one with %q", c.text, err, c.want)
		}
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
		o := compareOrder(c.a, c.b)
		if o.Right != c.right || o.Tie != c.tie {
			t.Errorf("%v and %v, %v and %v: %+v", c.a.Published.RequestsPerSecond, c.b.Published.RequestsPerSecond, c.a.Simulated.RequestsPerSecond, c.b.Simulated.RequestsPerSecond, o)
		}
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
	if o := compareOrder(a, b); o.Spread != 0 {
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
		Runs: 2, ThroughputError: math.Sqrt(1.1) - 1, ShareError: 5, ShareWorst: 6, ShareWithin: 1, ShareTotal: 2,
		CollapseFactor: 2, CollapseTotal: 1,
	}
	if d := cmp.Diff(want, fitErrors(runs, true), cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Error(d)
	}
	want = FitErrors{Runs: 1, ThroughputError: 1, TTFTError: 1}
	if d := cmp.Diff(want, fitErrors(runs, false), cmpopts.EquateApprox(1e-9, 0)); d != "" {
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
	if d := cmp.Diff(one, four, cmpopts.EquateNaNs()); d != "" || calls != 12 {
		t.Errorf("%d calls; %s", calls, d)
	}
}

func TestCompareRefusals(t *testing.T) {
	runs := PublishedMatrix()[:1]
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for want, o := range map[string]CompareOptions{
		"no measurements":   {Profile: Published(), Seeds: []uint64{1}},
		"at least one seed": {Profile: Published(), Measurements: runs},
		"duration -1s":      {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Duration: -time.Second},
		`report "other"`:    {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Fitted: []string{"other"}},
		"name: must not be": {Measurements: runs, Seeds: []uint64{1}},
		"output tokens: 0":  {Profile: Published(), Measurements: runs, Seeds: []uint64{1}, Base: &Workload{CorpusTokens: 1 << 20, NewTokens: 1}},
	} {
		if _, err := Compare(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	if _, err := Compare(cancelled, CompareOptions{Profile: Published(), Measurements: runs, Seeds: []uint64{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after cancellation", err)
	}
}
