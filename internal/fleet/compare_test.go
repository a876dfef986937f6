package fleet

import (
	"strings"
	"testing"
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
			runs = append(runs, Measurement{PrefixTokens: c.prefix, Concurrency: c.streams, Setting: s, RequestsPerSecond: 1})
		}
	}
	c, err := Compare(CompareOptions{Profile: Published(), Measurements: runs, Seeds: []uint64{11, 12, 13}})
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
		a, b  Run
		right bool
	}{
		{run(10, 10), run(11, 11), true},
		{run(10, 11), run(11, 10), false},
		{run(10, 10), run(10.1, 9.8), true},
		{run(10, 10), run(10.1, 10.4), false},
	}
	for _, c := range cases {
		if got := sameOrder(c.a, c.b); got != c.right {
			t.Errorf("%v and %v, %v and %v: same order %v", c.a.Published.RequestsPerSecond, c.b.Published.RequestsPerSecond, c.a.Simulated.RequestsPerSecond, c.b.Simulated.RequestsPerSecond, got)
		}
	}
}

func TestErrorsAreGeometricMeans(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	runs := []Run{
		{Published: Measurement{Report: FittedReport, RequestsPerSecond: 10, TTFTMeanMS: ms(100)}, Simulated: Stats{RequestsPerSecond: 11, TTFTMean: 0.1}},
		{Published: Measurement{Report: FittedReport, PrefixTokens: 1, RequestsPerSecond: 10}, Simulated: Stats{RequestsPerSecond: 10}},
		{Published: Measurement{Report: "other", RequestsPerSecond: 10, TTFTMeanMS: ms(100)}, Simulated: Stats{RequestsPerSecond: 5, TTFTMean: 0.2}},
	}
	e := fitErrors(runs, true)
	if want := 0.0488; e.ThroughputError < want-0.0001 || e.ThroughputError > want+0.0001 || e.TTFTError != 0 {
		t.Errorf("errors %+v; want %v and 0", e, want)
	}
	if e := fitErrors(runs, false); e.ThroughputError < 0.99 || e.TTFTError < 0.99 {
		t.Errorf("errors %+v; want a factor of two", e)
	}
}
