package prom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is far from the wall clock, so that nothing can depend on it.
var start = time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC)

const interval = 15 * time.Second

// at is the time of the n-th scrape.
func at(n int) time.Time { return start.Add(time.Duration(n) * interval) }

func open(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func client(t testing.TB, s *Server) v1.API {
	t.Helper()
	c, err := api.NewClient(api.Config{Address: "http://embedded", RoundTripper: s.RoundTripper()})
	if err != nil {
		t.Fatal(err)
	}
	return v1.NewAPI(c)
}

func pod(name string) map[string]string {
	return map[string]string{"job": "vllm", "namespace": "llm", "pod": name, "instance": name + ":8000"}
}

// vector asks for an instant vector and returns it as series -> value.
func vector(t testing.TB, a v1.API, expr string, ts time.Time) map[string]string {
	t.Helper()
	v, _, _, err := a.Query(context.Background(), expr, ts)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	got := map[string]string{}
	for _, s := range v.(model.Vector) {
		if s.Timestamp.Time().UnixMilli() != ts.UnixMilli() {
			t.Errorf("%s: timestamp %v, want %v", expr, s.Timestamp.Time(), ts)
		}
		got[s.Metric.String()] = s.Value.String()
		if s.Histogram != nil {
			got[s.Metric.String()] = fmt.Sprintf("count %v sum %v", s.Histogram.Count, s.Histogram.Sum)
		}
	}
	return got
}

func expect(t testing.TB, a v1.API, expr string, ts time.Time, want map[string]string) {
	t.Helper()
	if want == nil {
		want = map[string]string{}
	}
	if d := cmp.Diff(want, vector(t, a, expr, ts)); d != "" {
		t.Errorf("%s at %s (-want +got):\n%s", expr, ts.Format(time.TimeOnly), d)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exposition is a gatherer of hand-made families.
type exposition []*dto.MetricFamily

func (e exposition) Gather() ([]*dto.MetricFamily, error) { return e, nil }

func gauge(name string, v float64, pairs ...string) *dto.MetricFamily {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &v}}
	for i := 0; i < len(pairs); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	kind := dto.MetricType_GAUGE
	return &dto.MetricFamily{Name: &name, Type: &kind, Metric: []*dto.Metric{m}}
}

func TestScrapeRecordsEveryMetricType(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c_total"}, []string{"model_name"})
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{.001, 1, 2.5, 2560, 1e7}})
	sum := prometheus.NewSummary(prometheus.SummaryOpts{Name: "s", Objectives: map[float64]float64{0.5: 0.05, 1: 0}})
	u := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "u"}, func() float64 { return -3 })
	reg.MustRegister(c, h, sum, u)
	c.WithLabelValues("qwen").Add(7)
	for _, v := range []float64{0.5, 2, 2000} {
		h.Observe(v)
		sum.Observe(v)
	}
	s := open(t, Options{})
	a := client(t, s)
	must(t, s.Scrape(at(0), map[string]string{"instance": "i"}, reg))

	expect(t, a, `{__name__=~"c_total|h|h_.+|s|s_.+|u|up|scrape_.+"}`, at(0), map[string]string{
		`c_total{instance="i", model_name="qwen"}`:            "7",
		`h_bucket{instance="i", le="0.001"}`:                  "0",
		`h_bucket{instance="i", le="1.0"}`:                    "1",
		`h_bucket{instance="i", le="2.5"}`:                    "2",
		`h_bucket{instance="i", le="2560.0"}`:                 "3",
		`h_bucket{instance="i", le="1e+07"}`:                  "3",
		`h_bucket{instance="i", le="+Inf"}`:                   "3",
		`h_sum{instance="i"}`:                                 "2002.5",
		`h_count{instance="i"}`:                               "3",
		`s{instance="i", quantile="0.5"}`:                     "2",
		`s{instance="i", quantile="1.0"}`:                     "2000",
		`s_sum{instance="i"}`:                                 "2002.5",
		`s_count{instance="i"}`:                               "3",
		`u{instance="i"}`:                                     "-3",
		`up{instance="i"}`:                                    "1",
		`scrape_duration_seconds{instance="i"}`:               "0",
		`scrape_samples_scraped{instance="i"}`:                "14",
		`scrape_samples_post_metric_relabeling{instance="i"}`: "14",
		`scrape_series_added{instance="i"}`:                   "14",
	})
	must(t, s.Scrape(at(1), map[string]string{"instance": "i"}, reg))
	expect(t, a, `scrape_series_added`, at(1), map[string]string{`scrape_series_added{instance="i"}`: "0"})
}

func TestNativeHistogramKeepsBothForms(t *testing.T) {
	reg := prometheus.NewRegistry()
	both := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "both", Buckets: []float64{1}, NativeHistogramBucketFactor: 1.1})
	only := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "only", NativeHistogramBucketFactor: 1.1})
	empty := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "empty", NativeHistogramBucketFactor: 1.1})
	reg.MustRegister(both, only, empty)
	s := open(t, Options{})
	a := client(t, s)
	for i := range 3 {
		both.Observe(4)
		only.Observe(-8)
		must(t, s.Scrape(at(i), pod("a"), reg))
	}
	expect(t, a, `{__name__=~"both.*|only.*|empty.*"}`, at(2), map[string]string{
		`both{instance="a:8000", job="vllm", namespace="llm", pod="a"}`:                   "count 3 sum 12",
		`only{instance="a:8000", job="vllm", namespace="llm", pod="a"}`:                   "count 3 sum -24",
		`empty{instance="a:8000", job="vllm", namespace="llm", pod="a"}`:                  "count 0 sum 0",
		`both_sum{instance="a:8000", job="vllm", namespace="llm", pod="a"}`:               "12",
		`both_count{instance="a:8000", job="vllm", namespace="llm", pod="a"}`:             "3",
		`both_bucket{instance="a:8000", job="vllm", le="1.0", namespace="llm", pod="a"}`:  "0",
		`both_bucket{instance="a:8000", job="vllm", le="+Inf", namespace="llm", pod="a"}`: "3",
	})
	// The upper bound of the bucket that 4 is in, and its own value from the sum.
	expect(t, a, `histogram_quantile(1, sum(rate(both[30s])))`, at(2), map[string]string{`{}`: "4"})
	expect(t, a, `sum(histogram_avg(only))`, at(2), map[string]string{`{}`: "-8"})

	// A vanished native histogram becomes stale like any other series.
	reg.Unregister(only)
	must(t, s.Scrape(at(3), pod("a"), reg))
	expect(t, a, `only`, at(3), nil)
}

func TestTargetLabelsWin(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	g := exposition{gauge("g", 1, "pod", "x", "exported_pod", "y", "namespace", "z", "empty", "")}
	must(t, s.Scrape(at(0), map[string]string{"pod": "p", "namespace": "n", "container": ""}, g))
	expect(t, a, `g`, at(0), map[string]string{
		`g{exported_exported_pod="x", exported_namespace="z", exported_pod="y", namespace="n", pod="p"}`: "1",
	})
}

func TestValuesRoundTrip(t *testing.T) {
	values := map[string]float64{
		"v_nan": math.NaN(), "v_inf": math.Inf(1), "v_ninf": math.Inf(-1), "v_max": math.MaxFloat64,
		"v_tiny": math.SmallestNonzeroFloat64, "v_third": 1.0 / 3, "v_zero": 0,
	}
	g := exposition{}
	for name, v := range values {
		g = append(g, gauge(name, v))
	}
	s := open(t, Options{})
	a := client(t, s)
	must(t, s.Scrape(at(0), pod("a"), g))
	for name, want := range values {
		v, _, _, err := a.Query(context.Background(), name, at(0))
		must(t, err)
		got := float64(v.(model.Vector)[0].Value)
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestVanishedSeriesAreStaleAtOnce(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	two := exposition{gauge("kept", 1), gauge("gone", 2)}
	must(t, s.Scrape(at(0), pod("a"), two))
	must(t, s.Scrape(at(0), pod("b"), two))
	must(t, s.Scrape(at(1), pod("a"), two[:1]))
	must(t, s.Scrape(at(1), pod("b"), two))
	expect(t, a, `sum by(pod) ({__name__=~"kept|gone"})`, at(1), map[string]string{`{pod="a"}`: "1", `{pod="b"}`: "3"})
	expect(t, a, `gone`, at(1).Add(-time.Millisecond), map[string]string{
		`gone{instance="a:8000", job="vllm", namespace="llm", pod="a"}`: "2",
		`gone{instance="b:8000", job="vllm", namespace="llm", pod="b"}`: "2",
	})

	must(t, s.Scrape(at(2), pod("a"), two))
	expect(t, a, `sum by(pod) (gone)`, at(2), map[string]string{`{pod="a"}`: "2", `{pod="b"}`: "2"})

	must(t, s.Drop(at(3), pod("a")))
	must(t, s.ScrapeFailed(at(3), pod("b")))
	expect(t, a, `sum by(pod) ({__name__=~"kept|gone|up|scrape.*"})`, at(3), map[string]string{`{pod="b"}`: "0"})
	expect(t, a, `up{pod="b"}`, at(3), map[string]string{`up{instance="b:8000", job="vllm", namespace="llm", pod="b"}`: "0"})
	must(t, s.Scrape(at(4), pod("b"), two))
	expect(t, a, `count by(pod) ({__name__=~"kept|gone|up"})`, at(4), map[string]string{`{pod="b"}`: "3"})
	must(t, s.Drop(at(4), pod("never scraped")))
}

// gathererFunc is a gatherer that may fail.
type gathererFunc func() ([]*dto.MetricFamily, error)

func (f gathererFunc) Gather() ([]*dto.MetricFamily, error) { return f() }

func TestFailedScrapeIsUpZero(t *testing.T) {
	broken := errors.New("broken collector")
	good := exposition{gauge("g", 1)}
	cases := map[string]struct {
		g    prometheus.Gatherer
		want error
	}{
		"gather error, although families came with it": {gathererFunc(func() ([]*dto.MetricFamily, error) { return good, broken }), broken},
		"invalid label name":                           {exposition{gauge("g", 1), gauge("other", 1, "", "x")}, ErrScrape},
		"native histogram without its buckets":         {exposition{gauge("g", 1), badNative(3)}, ErrScrape},
		"native histogram with too many buckets":       {exposition{gauge("g", 1), badNative(1, 1, 1, 1)}, ErrScrape},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			a := client(t, s)
			must(t, s.Scrape(at(0), pod("a"), good))
			err := s.Scrape(at(1), pod("a"), c.g)
			if !errors.Is(err, ErrScrape) || !errors.Is(err, c.want) {
				t.Errorf("error is %v", err)
			}
			expect(t, a, `sum by(__name__) ({__name__=~"up|g|other"})`, at(1), map[string]string{`up`: "0"})
			must(t, s.Scrape(at(2), pod("a"), good))
			expect(t, a, `sum by(__name__) ({__name__=~"up|g|other"})`, at(2), map[string]string{`up`: "1", `g`: "1"})
		})
	}
}

// badNative is a histogram whose span promises another number of buckets than
// there are.
func badNative(promised uint32, deltas ...int64) *dto.MetricFamily {
	n := uint64(1)
	return histogramFamily("bad", &dto.Histogram{
		SampleCount: &n, PositiveDelta: deltas, PositiveSpan: []*dto.BucketSpan{{Length: &promised}},
	})
}

func histogramFamily(name string, h *dto.Histogram) *dto.MetricFamily {
	kind := dto.MetricType_HISTOGRAM
	return &dto.MetricFamily{Name: &name, Type: &kind, Metric: []*dto.Metric{{Histogram: h}}}
}

func TestExposedInfinityBucketIsNotDoubled(t *testing.T) {
	n, total, inf := uint64(3), 4.5, math.Inf(1)
	g := exposition{histogramFamily("h", &dto.Histogram{
		SampleCount: &n, SampleSum: &total, Bucket: []*dto.Bucket{{CumulativeCount: &n, UpperBound: &inf}},
	})}
	s := open(t, Options{})
	must(t, s.Scrape(at(0), map[string]string{"pod": "a"}, g))
	expect(t, client(t, s), `{__name__=~"h.*|scrape_samples_scraped"}`, at(0), map[string]string{
		`h_bucket{le="+Inf", pod="a"}`: "3", `h_sum{pod="a"}`: "4.5", `h_count{pod="a"}`: "3", `scrape_samples_scraped{pod="a"}`: "3",
	})
}

// TestSeriesAdded checks that a target forgets what it no longer exposes.
func TestSeriesAdded(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	two := exposition{gauge("g", 1), gauge("h", 1)}
	for n, step := range []struct {
		g     exposition
		added string
	}{
		{two, "2"}, {two, "0"}, {two[:1], "0"}, {two, "1"},
		{exposition{two[0], gauge("new", 1), badNative(3)}, "0"},
		{exposition{two[0], gauge("new", 1)}, "2"},
	} {
		if err := s.Scrape(at(n), pod("a"), step.g); err != nil && !errors.Is(err, ErrScrape) {
			t.Fatal(err)
		}
		expect(t, a, `sum(scrape_series_added)`, at(n), map[string]string{`{}`: step.added})
	}

	stamped, ms := gauge("stamped", 1), at(10).UnixMilli()
	stamped.Metric[0].TimestampMs = &ms
	must(t, s.Scrape(at(10), pod("a"), exposition{stamped}))
	must(t, s.Drop(at(11), pod("a")))
	must(t, s.Scrape(at(12), pod("a"), exposition{stamped}))
	expect(t, a, `sum(scrape_series_added)`, at(12), map[string]string{`{}`: "1"})
}

func TestEmptyTargetLabelsAreAbsent(t *testing.T) {
	s := open(t, Options{})
	must(t, s.Scrape(at(0), map[string]string{"pod": "a", "container": ""}, exposition{}))
	if err := s.Scrape(at(0), map[string]string{"pod": "a"}, exposition{}); !errors.Is(err, ErrTime) {
		t.Errorf("the same target twice at one time: error is %v", err)
	}
}

func TestTemporaryDirIsRemoved(t *testing.T) {
	s := open(t, Options{})
	must(t, s.Close())
	if _, err := os.Stat(s.tempDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s: %v", s.tempDir, err)
	}
}

func TestTimestampsAreChecked(t *testing.T) {
	s := open(t, Options{Lateness: 2 * time.Hour, MaxGap: 6 * time.Hour})
	a := client(t, s)
	g := exposition{gauge("g", 1)}
	must(t, s.Scrape(at(0), pod("a"), g))
	cases := []struct {
		name string
		at   time.Time
		pod  string
		ok   bool
	}{
		{"same time again", at(0), "a", false},
		{"earlier", at(0).Add(-time.Second), "a", false},
		{"less than a millisecond later", at(0).Add(time.Millisecond - 1), "a", false},
		{"zero time", time.Time{}, "b", false},
		{"before 1970", time.UnixMilli(-1), "b", false},
		{"far in the future", at(0).Add(6*time.Hour + time.Millisecond), "a", false},
		{"as far ahead as allowed", at(0).Add(6 * time.Hour), "a", true},
		{"too late", at(0).Add(4*time.Hour - time.Millisecond), "b", false},
		{"as late as allowed", at(0).Add(4 * time.Hour), "b", true},
		{"the late one moves on", at(0).Add(4*time.Hour + interval), "b", true},
	}
	for _, c := range cases {
		err := s.Scrape(c.at, pod(c.pod), g)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrTime) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
	expect(t, a, `sum by(pod) (count_over_time(g[8h]))`, at(0).Add(6*time.Hour), map[string]string{`{pod="a"}`: "2", `{pod="b"}`: "2"})
	if want := at(0).Add(6 * time.Hour); !s.Newest().Equal(want) {
		t.Errorf("newest is %v, want %v", s.Newest(), want)
	}
}

func TestExposedTimestamps(t *testing.T) {
	stamped := func(ts time.Time) exposition {
		f, ms := gauge("g", 5), ts.UnixMilli()
		f.Metric[0].TimestampMs = &ms
		return exposition{f, gauge("other", 1)}
	}
	s := open(t, Options{})
	a := client(t, s)
	must(t, s.Scrape(at(4), pod("a"), stamped(at(2))))
	expect(t, a, `timestamp(sum(g)) or sum(g)`, at(2), map[string]string{`{}`: fmt.Sprint(at(2).Unix())})
	// One from the wall clock's year must not end the world for all others.
	must(t, s.Scrape(at(5), pod("a"), stamped(at(5).Add(20*365*24*time.Hour))))
	expect(t, a, `sum by(__name__) ({__name__=~"g|other|up"})`, at(5), map[string]string{`g`: "5", `other`: "1", `up`: "1"})
	must(t, s.Scrape(at(6), pod("a"), exposition{gauge("other", 2)}))
	expect(t, a, `sum by(__name__) ({__name__=~"g|other|up"})`, at(6), map[string]string{`g`: "5", `other`: "2", `up`: "1"})
}

func TestDuplicateSampleIsDropped(t *testing.T) {
	var log strings.Builder
	s := open(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, s.Scrape(at(0), pod("a"), exposition{gauge("g", 1), gauge("g", 2), gauge("h", 3)}))
	if !strings.Contains(log.String(), "sample dropped") {
		t.Errorf("the log does not tell: %s", &log)
	}
	expect(t, client(t, s), `sum by(__name__) ({__name__=~"g|h|up"})`, at(0), map[string]string{`g`: "1", `h`: "3", `up`: "1"})
}

func TestTargetsAreChecked(t *testing.T) {
	s := open(t, Options{})
	for _, set := range []map[string]string{nil, {}, {"pod": ""}, {"__name__": "x"}, {"pod": "\xff"}, {"\xff": "x"}} {
		for name, do := range map[string]func() error{
			"Scrape":       func() error { return s.Scrape(at(0), set, exposition{}) },
			"ScrapeFailed": func() error { return s.ScrapeFailed(at(0), set) },
			"Drop":         func() error { return s.Drop(at(0), set) },
		} {
			if err := do(); !errors.Is(err, ErrTarget) {
				t.Errorf("%s(%q): error is %v", name, set, err)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := Open(Options{Lookback: -time.Second, MaxGap: time.Microsecond})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Lookback is -1s", "MaxGap is 1µs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestDirOutlivesClose(t *testing.T) {
	o := Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	s, err := Open(o)
	must(t, err)
	must(t, s.Scrape(at(0), pod("a"), exposition{gauge("g", 4)}))
	must(t, s.Close())
	must(t, s.Close())
	if err := s.Scrape(at(1), pod("a"), exposition{}); !errors.Is(err, ErrClosed) {
		t.Errorf("error after Close is %v", err)
	}
	s = open(t, o)
	expect(t, client(t, s), `sum(g)`, at(0), map[string]string{`{}`: "4"})
	if !s.Newest().Equal(at(0)) {
		t.Errorf("newest after reopening is %v, want %v", s.Newest(), at(0))
	}
	if err := s.Scrape(at(0).Add(100*time.Hour), pod("a"), exposition{}); !errors.Is(err, ErrTime) {
		t.Errorf("error after reopening is %v", err)
	}
}
