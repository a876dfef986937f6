package prom

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"
)

func TestRateAcrossReset(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	for i, v := range []float64{100, 115, 130, 5, 20} {
		must(t, s.Scrape(at(i), pod("a"), exposition{gauge("c_total", v)}))
	}
	// 15 + 15 + (reset) 5 + 15 in 60 s, extrapolated to 75 s.
	expect(t, a, `sum(increase(c_total[75s]))`, at(4), map[string]string{`{}`: "62.5"})
	expect(t, a, `sum(resets(c_total[2m]))`, at(4), map[string]string{`{}`: "1"})
}

func TestHistogramQuantileAndShare(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ttft", Buckets: []float64{1, 2, 4}})
	reg.MustRegister(h)
	s := open(t, Options{})
	a := client(t, s)
	for i := range 5 {
		must(t, s.Scrape(at(i), pod("a"), reg))
		for range 50 {
			h.Observe(0.5)
			h.Observe(3)
		}
	}
	expect(t, a, `histogram_quantile(0.75, sum by(le) (rate(ttft_bucket[1m])))`, at(4), map[string]string{`{}`: "3"})
	expect(t, a, `sum(increase(ttft_bucket{le="1.0"}[1m])) / sum(increase(ttft_count[1m]))`, at(4), map[string]string{`{}`: "0.5"})
	expect(t, a, `histogram_quantile(0.5, sum by(le) (rate(ttft_bucket[1m] offset 1h)))`, at(4), nil)
}

func TestMatrixScalarAndString(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	for i := range 5 {
		must(t, s.Scrape(at(i), pod("a"), exposition{gauge("g", float64(i))}))
	}
	ctx := context.Background()
	v, _, _, err := a.Query(ctx, `g[1m]`, at(4))
	must(t, err)
	var got []model.SamplePair
	got = append(got, v.(model.Matrix)[0].Values...)
	var want []model.SamplePair
	for i := 1; i < 5; i++ {
		want = append(want, model.SamplePair{Timestamp: model.TimeFromUnixNano(at(i).UnixNano()), Value: model.SampleValue(i)})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("matrix (-want +got):\n%s", d)
	}
	v, _, _, err = a.QueryRange(ctx, `sum(g)`, v1.Range{Start: at(0), End: at(4), Step: 2 * interval})
	must(t, err)
	if got, want := v.String(), "{} =>\n0 @[946681200]\n2 @[946681230]\n4 @[946681260]"; got != want {
		t.Errorf("range query: got %s, want %s", got, want)
	}
	v, _, _, err = a.QueryRange(ctx, `nothing`, v1.Range{Start: at(0), End: at(4), Step: interval})
	must(t, err)
	if m := v.(model.Matrix); len(m) != 0 {
		t.Errorf("range query for nothing: %v", m)
	}
	v, _, _, err = a.Query(ctx, `1/0`, at(4))
	must(t, err)
	if got, want := v.String(), "scalar: +Inf @[946681260]"; got != want {
		t.Errorf("scalar: got %s, want %s", got, want)
	}
	// The Go client does not know strings.
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", `/api/v1/query?query=%22a%20string%22&time=1999-12-31T23:01:00.5Z`, nil))
	if got, want := w.Body.String(), `{"status":"success","data":{"resultType":"string","result":[946681260.5,"a string"]}}`; got != want {
		t.Errorf("string: got %s, want %s", got, want)
	}
}

func TestQueryWithoutTime(t *testing.T) {
	now := at(1)
	for name, o := range map[string]Options{"newest scrape": {}, "injected clock": {Now: func() time.Time { return now }}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, o)
			must(t, s.Scrape(at(1), pod("a"), exposition{gauge("g", 1)}))
			v, _, _, err := client(t, s).Query(context.Background(), `time()`, time.Time{})
			must(t, err)
			if got := float64(v.(*model.Scalar).Value); got != float64(at(1).Unix()) {
				t.Errorf("evaluated at %v, want %v", got, at(1).Unix())
			}
		})
	}
}

func TestBrowse(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	ctx := context.Background()
	must(t, s.Scrape(at(0), map[string]string{"pod": "a"}, exposition{gauge("g", 1), gauge("h", 1, "le.gal", "x")}))
	must(t, s.Scrape(at(0), map[string]string{"pod": "b"}, exposition{gauge("g", 1)}))

	sets, _, _, err := a.Series(ctx, []string{`g{pod="b"}`, `{__name__=~"g|h"}`}, time.Time{}, time.Time{})
	must(t, err)
	want := []model.LabelSet{{"__name__": "g", "pod": "a"}, {"__name__": "g", "pod": "b"}, {"__name__": "h", "le.gal": "x", "pod": "a"}}
	if d := cmp.Diff(want, sets); d != "" {
		t.Errorf("series (-want +got):\n%s", d)
	}
	if sets, _, _, err = a.Series(ctx, []string{`g`}, at(-9), at(-8)); err != nil || len(sets) != 0 {
		t.Errorf("series before the first sample: %v, %v", sets, err)
	}
	names, _, _, err := a.LabelNames(ctx, nil, time.Time{}, time.Time{})
	must(t, err)
	if d := cmp.Diff(model.LabelNames{"__name__", "le.gal", "pod"}, names); d != "" {
		t.Errorf("label names (-want +got):\n%s", d)
	}
	values, _, _, err := a.LabelValues(ctx, "pod", []string{`g`, `h`}, time.Time{}, time.Time{})
	must(t, err)
	if d := cmp.Diff(model.LabelValues{"a", "b"}, values); d != "" {
		t.Errorf("label values (-want +got):\n%s", d)
	}
	values, warnings, _, err := a.LabelValues(ctx, "__name__", nil, time.Time{}, time.Time{}, v1.WithLimit(1))
	must(t, err)
	if d := cmp.Diff(model.LabelValues{"g"}, values); d != "" || len(warnings) != 1 {
		t.Errorf("limited label values: %s, warnings %q", d, warnings)
	}
	for _, escaped := range []string{"le.gal", "U__le_2e_gal"} {
		values, _, _, err = a.LabelValues(ctx, escaped, nil, time.Time{}, time.Time{})
		must(t, err)
		if d := cmp.Diff(model.LabelValues{"x"}, values); d != "" {
			t.Errorf("values of %s (-want +got):\n%s", escaped, d)
		}
	}
	meta, err := a.Metadata(ctx, "", "1")
	must(t, err)
	if d := cmp.Diff(map[string][]v1.Metadata{"g": {{Type: "gauge"}}}, meta); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	info, err := a.Buildinfo(ctx)
	if err != nil || info.Version != engineVersion {
		t.Errorf("build info: %+v, %v", info, err)
	}
}

func TestErrors(t *testing.T) {
	s := open(t, Options{})
	must(t, s.Scrape(at(0), pod("a"), exposition{gauge("g", 1)}))
	must(t, s.Scrape(at(0), pod("b"), exposition{gauge("g", 1)}))
	slow := "sum_over_time(sum_over_time(vector(1)[30m:1s])[90m:1s])"
	cases := []struct {
		name, path string
		form       url.Values
		status     int
		class, has string
	}{
		{"syntax", "query", url.Values{"query": {"sum("}}, 400, "bad_data", `invalid parameter "query": 1:5: parse error`},
		{"no query", "query", nil, 400, "bad_data", `invalid parameter "query"`},
		{"time", "query", url.Values{"query": {"1"}, "time": {"soon"}}, 400, "bad_data", `cannot parse "soon"`},
		{"time NaN", "query", url.Values{"query": {"1"}, "time": {"NaN"}}, 400, "bad_data", `cannot parse "NaN"`},
		{"time beyond reason", "query", url.Values{"query": {"1"}, "time": {"1e300"}}, 400, "bad_data", `cannot parse "1e300"`},
		{"timeout sign", "query", url.Values{"query": {"1"}, "timeout": {"-1s"}}, 400, "bad_data", `"timeout"`},
		{"limit", "query", url.Values{"query": {"1"}, "limit": {"-1"}}, 400, "bad_data", `"limit"`},
		{"many to many", "query", url.Values{"query": {"g * on() group_left g"}, "time": {"946681200"}}, 422, "execution", "many-to-many"},
		{"too slow", "query", url.Values{"query": {slow}, "timeout": {"1ms"}}, 503, "timeout", "timed out"},
		{"no start", "query_range", url.Values{"query": {"1"}, "end": {"1"}, "step": {"1"}}, 400, "bad_data", `"start"`},
		{"backwards", "query_range", url.Values{"query": {"1"}, "start": {"2"}, "end": {"1"}, "step": {"1"}}, 400, "bad_data", `"end"`},
		{"zero step", "query_range", url.Values{"query": {"1"}, "start": {"1"}, "end": {"2"}, "step": {"0"}}, 400, "bad_data", `"step"`},
		{"too many points", "query_range", url.Values{"query": {"1"}, "start": {"0"}, "end": {"12000"}, "step": {"1s"}}, 400, "bad_data", "11000 points"},
		{"matrix over a range", "query_range", url.Values{"query": {"g[1m]"}, "start": {"0"}, "end": {"1"}, "step": {"1s"}}, 400, "bad_data", `invalid expression type "range vector"`},
		{"no selector", "series", nil, 400, "bad_data", "no match[]"},
		{"selector of all", "series", url.Values{"match[]": {`{pod=~".*"}`}}, 400, "bad_data", "non-empty matcher"},
		{"bad selector", "labels", url.Values{"match[]": {`{`}}, 400, "bad_data", `"match[]"`},
		{"body too large", "query", url.Values{"query": {strings.Repeat("x", maxBody)}}, 400, "bad_data", "1048576 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/"+c.path, strings.NewReader(c.form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), `"status":"error","errorType":"`+c.class+`"`) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, c.status, c.class)
			}
			if got := strings.ReplaceAll(w.Body.String(), `\"`, `"`); !strings.Contains(got, c.has) {
				t.Errorf("%s lacks %s", got, c.has)
			}
		})
	}
}

func TestEmptyResultsAreLists(t *testing.T) {
	s := open(t, Options{})
	for _, target := range []string{
		"query?query=nothing", "query?query=nothing[1m]", "query_range?query=nothing&start=0&end=1&step=1", "series?match[]=nothing", "labels", "label/x/values", "metadata",
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/"+target, nil))
		if w.Code != 200 || strings.Contains(w.Body.String(), "null") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestQueryLimitAndLookback(t *testing.T) {
	s := open(t, Options{})
	a := client(t, s)
	must(t, s.Scrape(at(0), pod("a"), exposition{gauge("g", 1), gauge("h", 1)}))
	for _, expr := range []string{`{__name__=~"g|h"}`, `{__name__=~"g|h"}[1m]`} {
		v, warnings, _, err := a.Query(context.Background(), expr, at(0), v1.WithLimit(1))
		must(t, err)
		if strings.Count(v.String(), "=>") != 1 || len(warnings) != 1 {
			t.Errorf("%s limited to 1: %s, warnings %q", expr, v, warnings)
		}
	}
	v, _, _, err := a.Query(context.Background(), `g`, at(4), v1.WithLookbackDelta(30*time.Second))
	must(t, err)
	if len(v.(model.Vector)) != 0 {
		t.Errorf("a sample of a minute ago with 30s of lookback: %s", v)
	}
}

func TestNotesAreSorted(t *testing.T) {
	s := open(t, Options{})
	g := exposition{gauge("a", 1), gauge("b", 1), gauge("c", 1)}
	must(t, s.Scrape(at(0), pod("a"), g))
	must(t, s.Scrape(at(1), pod("a"), g))
	for range 20 {
		_, warnings, infos, err := client(t, s).Query(context.Background(), `rate(a[1m]) or rate(b[1m]) or rate(c[1m]) or quantile(2, a) or quantile(-1, a) or quantile(3, a)`, at(1))
		must(t, err)
		if len(warnings) != 3 || !slices.IsSorted(warnings) || len(infos) != 3 || !slices.IsSorted(infos) {
			t.Fatalf("warnings %q, infos %q", warnings, infos)
		}
	}
}

func TestTimesRoundTrip(t *testing.T) {
	if got, err := parseTime("1.0006"); err != nil || got.UnixMilli() != 1001 {
		t.Errorf("1.0006 is %d ms, %v", got.UnixMilli(), err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		ms := rapid.Int64Range(0, 4e12).Draw(rt, "ms")
		got, err := parseTime(strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64))
		if err != nil || got.UnixMilli() != ms {
			rt.Fatalf("%d came back as %d, %v", ms, got.UnixMilli(), err)
		}
	})
}

func TestRoundTripCancelledMidway(t *testing.T) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	body := readerFunc(func(b []byte) (int, error) {
		cancel()
		return copy(b, "query=1"), io.EOF
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://embedded/api/v1/query", body)
	must(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, err := s.RoundTripper().RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestErrorThroughClient(t *testing.T) {
	s := open(t, Options{})
	_, _, _, err := client(t, s).Query(context.Background(), "sum(", at(0))
	var apiErr *v1.Error
	if !errors.As(err, &apiErr) || apiErr.Type != v1.ErrBadData {
		t.Errorf("error is %#v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, _, err := client(t, s).Query(ctx, "1", at(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("error with a cancelled context is %v", err)
	}
}

func TestHTTPDetails(t *testing.T) {
	s := open(t, Options{})
	for _, c := range []struct {
		method, target string
		status         int
	}{
		{"GET", "/-/ready", 200}, {"GET", "/-/healthy", 200}, {"HEAD", "/-/healthy", 200},
		{"GET", "/api/v1/query?query=1", 200}, {"DELETE", "/api/v1/query?query=1", 405},
		{"GET", "/api/v1/query?query=%zz", 400}, {"GET", "/api/v1/label/a%ff/values", 400}, {"GET", "/api/v1/nonsense", 404},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.URL, _ = url.Parse(c.target)
		if r.URL == nil {
			t.Fatalf("bad target %s", c.target)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.target, w.Code, w.Body, c.status)
		}
	}
	must(t, s.Close())
	for _, target := range []string{"/-/ready", "/api/v1/query?query=1"} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if w.Code != 503 {
			t.Errorf("%s after Close: got %d", target, w.Code)
		}
	}
}

func TestListen(t *testing.T) {
	s := open(t, Options{})
	must(t, s.Scrape(at(0), pod("a"), exposition{gauge("g", 1)}))
	address, err := s.Listen("")
	must(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	must(t, err)
	expect(t, v1.NewAPI(c), `sum(g)`, at(0), map[string]string{`{}`: "1"})

	must(t, s.Close())
	if _, _, _, err := v1.NewAPI(c).Query(context.Background(), "1", at(0)); err == nil {
		t.Error("answered after Close")
	}
	if _, err := s.Listen(""); !errors.Is(err, ErrClosed) {
		t.Errorf("Listen after Close: error is %v", err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":9090", "example.com:80", "127.0.0.1", "[::]:0"} {
		if _, err := s.Listen(addr); err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("Listen(%q): error is %v", addr, err)
		}
	}
}

func TestCloseCancelsRunningQuery(t *testing.T) {
	s := open(t, Options{})
	started := make(chan struct{})
	done := make(chan int)
	body := io.NopCloser(readerFunc(func(b []byte) (int, error) {
		close(started)
		return copy(b, "query="+url.QueryEscape("sum_over_time(sum_over_time(sum_over_time(vector(1)[1h:1s])[1h:1s])[1h:1s])")), io.EOF
	}))
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/query", body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		done <- w.Code
	}()
	<-started
	must(t, s.Close())
	if code := <-done; code != canceled.status {
		t.Errorf("got %d, want %d", code, canceled.status)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestConcurrentScrapeAndQuery checks that a query sees each scrape whole.
func TestConcurrentScrapeAndQuery(t *testing.T) {
	s := open(t, Options{})
	const pods, scrapes = 4, 60
	var wg sync.WaitGroup
	for p := range pods {
		wg.Go(func() {
			for i := range scrapes {
				g := exposition{gauge("x", float64(i)), gauge("y", float64(i))}
				if err := s.Scrape(at(i), pod(string(rune('a'+p))), g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			a := client(t, s)
			for i := range scrapes {
				v, _, _, err := a.Query(context.Background(), `max(abs((x or 0*y) - on(pod) y))`, at(i))
				if err != nil {
					t.Error(err)
					continue
				}
				for _, sample := range v.(model.Vector) {
					if sample.Value != 0 {
						t.Errorf("torn scrape: x and y differ by %v", sample.Value)
					}
				}
			}
		})
	}
	wg.Wait()
	expect(t, client(t, s), `sum(count_over_time(x[1d]))`, at(scrapes), map[string]string{`{}`: "240"})
}

// TestLongVirtualRun passes several head compactions.
func TestLongVirtualRun(t *testing.T) {
	s := open(t, Options{Retention: 6 * time.Hour})
	a := client(t, s)
	const hours, perHour = 30, 60
	for i := range hours * perHour {
		must(t, s.Scrape(start.Add(time.Duration(i)*time.Minute), pod("a"), exposition{gauge("c_total", float64(i))}))
	}
	end := start.Add((hours*perHour - 1) * time.Minute)
	expect(t, a, `sum(delta(c_total[4h]))`, end, map[string]string{`{}`: "240"})
}
