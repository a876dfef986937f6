package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

var now = time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC)

type pool tuner.Status

func (p pool) Status() tuner.Status { return tuner.Status(p) }

func (p pool) Timeline() []tuner.Point { return nil }

func (p pool) Obey(context.Context, time.Time, tuner.Command) (tuner.Receipt, error) {
	return tuner.Receipt{}, errors.New("this pool obeys nobody")
}

func decision(n int, name string, kind store.Kind) store.Decision {
	at := now.Add(-time.Duration(n) * time.Hour)
	p := store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	return store.Decision{
		ID: store.NewID(at, uint64(n)), Pool: name, Time: at, Kind: kind, Mode: store.ModeObserve,
		From: p, To: p, Reason: fmt.Sprintf("reason %d", n), Evidence: &store.Evidence{Verdict: "better"},
	}
}

// handler serves a ready pool "a" with six hourly decisions, a "b" that waits,
// and a history that also has a pool "gone".
func handler(t *testing.T, change func(*web.Options)) http.Handler {
	t.Helper()
	h, err := store.OpenHistory(store.HistoryOptions{
		Path: filepath.Join(t.TempDir(), "history.db"), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	for n := 1; n <= 6; n++ {
		kind := store.KindKeep
		if n%2 == 0 {
			kind = store.KindMove
		}
		record(t, h, decision(n, "a", kind))
	}
	record(t, h, decision(7, "gone", store.KindAdopt))
	incumbent := decision(1, "a", store.KindKeep).To
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kvtuner_revision", Help: "A gauge."}))
	o := web.Options{
		Version: "v1.2.3", History: h, Gatherer: registry, Now: func() time.Time { return now },
		Logger: slog.New(slog.DiscardHandler),
		Pools: web.Fixed{
			pool{Pool: "a", Ready: true, Mode: tuner.Observe, LastState: tuner.OK, Doing: "resting", Incumbent: &incumbent},
			pool{Pool: "b", Doing: "waiting to take over the pool"},
		},
	}
	if change != nil {
		change(&o)
	}
	handler, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func record(t *testing.T, h *store.History, d store.Decision) {
	t.Helper()
	if err := h.Append(d); err != nil {
		t.Fatal(err)
	}
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("status %d, body %s: %v", w.Code, w.Body, err)
	}
	return v
}

func TestReadyNamesEachPoolThatIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		pools web.Fixed
		code  int
		body  string
	}{
		"no pools":         {nil, 200, "ok\n"},
		"ready":            {web.Fixed{pool{Pool: "a", Ready: true, LastState: tuner.OK}}, 200, "ok\n"},
		"idle is ready":    {web.Fixed{pool{Pool: "a", Ready: true, LastState: tuner.Idle}}, 200, "ok\n"},
		"no sample yet":    {web.Fixed{pool{Pool: "a", Ready: true}}, 200, "ok\n"},
		"not stepped yet":  {web.Fixed{pool{Pool: "a"}}, 503, "pool a: waiting for the first step\n"},
		"not taken over":   {web.Fixed{pool{Pool: "a", Doing: "waiting"}}, 503, "pool a: waiting\n"},
		"failing step":     {web.Fixed{pool{Pool: "a", Doing: "resting", Error: "disk\nfull"}}, 503, "pool a: disk; full\n"},
		"data missing":     {web.Fixed{pool{Pool: "a", Ready: true, LastState: tuner.Unknown, LastWhy: "refused"}}, 503, "pool a: data is missing: refused\n"},
		"plugin missing":   {web.Fixed{pool{Pool: "a", Ready: true, LastState: tuner.OK, LastWhy: "no plugin"}}, 503, "pool a: data is missing: no plugin\n"},
		"one of several":   {web.Fixed{pool{Pool: "a", Ready: true}, pool{Pool: "b", Error: "x"}}, 503, "pool b: x\n"},
		"several of three": {web.Fixed{pool{Pool: "a", Error: "y"}, pool{Pool: "b", Ready: true}, pool{Pool: "c", Error: "x"}}, 503, "pool a: y\npool c: x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(handler(t, func(o *web.Options) { o.Pools = tc.pools }), "/readyz")
			if w.Code != tc.code || w.Body.String() != tc.body {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tc.code, tc.body)
			}
		})
	}
}

func TestHealthAndMetrics(t *testing.T) {
	h := handler(t, nil)
	if w := get(h, "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("healthz: %d %q", w.Code, w.Body)
	}
	if w := get(h, "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "kvtuner_revision 0") {
		t.Errorf("metrics: %d %q", w.Code, w.Body)
	}
}

func TestStatus(t *testing.T) {
	h := handler(t, nil)
	s := decode[web.StatusResponse](t, get(h, "/api/v1/status"))
	if s.Version != "v1.2.3" || s.Ready || len(s.Pools) != 2 {
		t.Errorf("all pools: %+v", s)
	}
	if b := s.Pools[1]; b.Incumbent != nil || b.Ready || b.NotReady != "waiting to take over the pool" {
		t.Errorf("a pool that was not taken over: %+v", b)
	}
	s = decode[web.StatusResponse](t, get(h, "/api/v1/status?pool=a"))
	if !s.Ready || len(s.Pools) != 1 || s.Pools[0].Incumbent == nil || s.Pools[0].Incumbent.String() != "1024+8" {
		t.Errorf("pool a: %+v", s)
	}
}

func TestStatusThatHasNoJSONFormIsAnError(t *testing.T) {
	h := handler(t, func(o *web.Options) {
		o.Pools = web.Fixed{pool{Pool: "a", Ready: true, Recent: map[string]float64{"waiting": math.NaN()}}}
	})
	w := get(h, "/api/v1/status")
	if e := decode[web.ErrorResponse](t, w); w.Code != 500 || e.Error.Code != web.CodeInternal {
		t.Errorf("got %d %+v", w.Code, e)
	}
}

func TestDecisionsFilter(t *testing.T) {
	h := handler(t, nil)
	for query, want := range map[string]string{
		"":                                  "1 2 3 4 5 6 7",
		"pool=a":                            "1 2 3 4 5 6",
		"pool=gone":                         "7",
		"pool=b":                            "", // is tuned, decided nothing
		"kind=move":                         "2 4 6",
		"kind=move,adopt":                   "2 4 6 7",
		"kind=move&kind=adopt":              "2 4 6 7",
		"since=3h":                          "1 2 3", // inclusive
		"until=3h":                          "4 5 6 7",
		"since=2026-11-30T13:00:00Z":        "1 2 3",
		"since=2026-11-30T14:00:00%2B01:00": "1 2 3",
		"since=4h&until=2h":                 "3 4",
		"since=1d&limit=1000":               "1 2 3 4 5 6 7",
		"limit=2":                           "1 2 truncated",
		"limit=7":                           "1 2 3 4 5 6 7",
		"kind=move&limit=2":                 "2 4 truncated",
		"since=0001-01-01T00:00:00Z":        "1 2 3 4 5 6 7",
		"until=9999-12-31T23:59:59Z":        "1 2 3 4 5 6 7",
		"pool=&kind=&since=&until=&limit=":  "1 2 3 4 5 6 7",
	} {
		w := get(h, "/api/v1/decisions?"+query)
		if w.Code != 200 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
			continue
		}
		d := decode[web.DecisionsResponse](t, w)
		var got []string
		for _, one := range d.Decisions {
			if one.Evidence != nil {
				t.Errorf("%s: a list shows evidence", query)
			}
			got = append(got, strings.TrimPrefix(one.Reason, "reason "))
		}
		if d.Truncated {
			got = append(got, "truncated")
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
		if !strings.Contains(w.Body.String(), `"decisions": [`) {
			t.Errorf("%s: decisions must be a list, even if empty: %s", query, w.Body)
		}
	}
}

func TestDecisionHasItsEvidence(t *testing.T) {
	h := handler(t, nil)
	want := decision(3, "a", store.KindKeep)
	for _, path := range []string{want.ID, want.ID + "?pool=a", want.ID[:14]} {
		got := decode[store.Decision](t, get(h, "/api/v1/decisions/"+path))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestBadRequests(t *testing.T) {
	h := handler(t, nil)
	for target, want := range map[string]struct {
		status int
		code   web.Code
		says   string
	}{
		"/nope":                   {404, web.CodeNotFound, "/api/v1/status"},
		"/api/v2/status":          {404, web.CodeNotFound, "no such path"},
		"/api/v1/decisions/":      {404, web.CodeNotFound, "no such path"},
		"/api/v1/decisions/a/b":   {404, web.CodeNotFound, "no such path"},
		"/api/v1/status?pool=x":   {404, web.CodeNotFound, "there are: a, b"},
		"/api/v1/status?pol=a":    {400, web.CodeParameter, `unknown parameter "pol"; allowed are pool`},
		"/api/v1/status?pool=a;b": {400, web.CodeParameter, "cannot be read"},
		"/api/v1/status?pool=%zz": {400, web.CodeParameter, "cannot be read"},

		"/api/v1/decisions?pool=x":                       {404, web.CodeNotFound, "there are: a, b, gone"},
		"/api/v1/decisions?pool=a&pool=b":                {400, web.CodeParameter, "pool is there 2 times"},
		"/api/v1/decisions?kind=explode":                 {400, web.CodeParameter, `kind "explode" is not allowed`},
		"/api/v1/decisions?limit=0":                      {400, web.CodeParameter, "from 1 to 1000"},
		"/api/v1/decisions?limit=-1":                     {400, web.CodeParameter, "from 1 to 1000"},
		"/api/v1/decisions?limit=1001":                   {400, web.CodeParameter, "from 1 to 1000"},
		"/api/v1/decisions?limit=99999999999999999999":   {400, web.CodeParameter, "from 1 to 1000"},
		"/api/v1/decisions?limit=1e3":                    {400, web.CodeParameter, "from 1 to 1000"},
		"/api/v1/decisions?since=yesterday":              {400, web.CodeParameter, "neither a time"},
		"/api/v1/decisions?since=-5m":                    {400, web.CodeParameter, "neither a time"},
		"/api/v1/decisions?since=999999999999y":          {400, web.CodeParameter, "neither a time"},
		"/api/v1/decisions?until=2026-13-01T00:00:00Z":   {400, web.CodeParameter, "neither a time"},
		"/api/v1/decisions?since=1h&until=2h":            {400, web.CodeParameter, "is not before"},
		"/api/v1/decisions?since=1h&until=1h":            {400, web.CodeParameter, "is not before"},
		"/api/v1/decisions?__proto__=1":                  {400, web.CodeParameter, "unknown parameter"},
		"/api/v1/decisions/2026":                         {400, web.CodeParameter, "it fits"},
		"/api/v1/decisions/nope":                         {404, web.CodeNotFound, "not found"},
		"/api/v1/decisions/%00":                          {404, web.CodeNotFound, "not found"},
		"/api/v1/decisions/..%2F..%2Fetc%2Fpasswd":       {404, web.CodeNotFound, "not found"},
		"/api/v1/decisions/" + strings.Repeat("9", 8000): {404, web.CodeNotFound, "not found"},
		"/api/v1/decisions/20261130T130000Z-0003?pool=b": {404, web.CodeNotFound, "not found"},
		"/api/v1/decisions/20261130T130000Z-0003?x=1":    {400, web.CodeParameter, "unknown parameter"},
	} {
		w := get(h, target)
		e := decode[web.ErrorResponse](t, w)
		if w.Code != want.status || e.Error == nil || e.Error.Code != want.code || !strings.Contains(e.Error.Message, want.says) {
			t.Errorf("%.80s: got %d %+v, want %d %s saying %q", target, w.Code, e.Error, want.status, want.code, want.says)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%.80s: content type %s", target, got)
		}
	}
}

func TestOnlyReading(t *testing.T) {
	h := handler(t, nil)
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/decisions"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "BREW"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("x")))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: got %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestHeadHasNoBody(t *testing.T) {
	s := httptest.NewServer(handler(t, nil))
	defer s.Close()
	for path, want := range map[string]int{"/api/v1/status": 200, "/api/v1/decisions?limit=0": 400, "/readyz": 503} {
		r, err := http.Head(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != want || len(body) != 0 {
			t.Errorf("HEAD %s: %d, body %q, %v; want %d", path, r.StatusCode, body, err, want)
		}
	}
}

func TestHistoryThatFailsIsAnInternalError(t *testing.T) {
	h := handler(t, func(o *web.Options) { o.History = broken{} })
	for _, path := range []string{"/api/v1/decisions", "/api/v1/decisions/x"} {
		w := get(h, path)
		if e := decode[web.ErrorResponse](t, w); w.Code != 500 || e.Error.Code != web.CodeInternal {
			t.Errorf("%s: got %d %+v", path, w.Code, e.Error)
		}
	}
}

type broken struct{ web.History }

func (broken) Query(store.Filter) ([]store.Decision, error) { return nil, store.ErrCorrupt }

func (broken) Get(string, string) (store.Decision, error) {
	return store.Decision{}, store.ErrCorrupt
}

// slow counts the queries in progress, which end when released.
type slow struct {
	web.History
	inside  *atomic.Int32
	release chan struct{}
}

func (s slow) Query(store.Filter) ([]store.Decision, error) {
	s.inside.Add(1)
	defer s.inside.Add(-1)
	<-s.release
	return nil, nil
}

func TestReadsOfTheHistoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, asked = 4, 9
		s := slow{inside: new(atomic.Int32), release: make(chan struct{})}
		h := handler(t, func(o *web.Options) { o.History = s })
		codes := make(chan int, asked+1)
		ask := func(ctx context.Context) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/decisions", nil))
			codes <- w.Code
		}
		for range asked {
			go ask(t.Context())
		}
		synctest.Wait()
		if n := s.inside.Load(); n != bound {
			t.Errorf("%d reads at a time, want %d", n, bound)
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		ask(left)
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("a client that left its turn got %d", code)
		}
		close(s.release)
		for range asked {
			if code := <-codes; code != 200 {
				t.Errorf("got %d", code)
			}
		}
	})
}

func TestNewWantsItsOptions(t *testing.T) {
	if _, err := web.New(web.Options{}); err == nil {
		t.Error("accepted no options")
	}
}

func FuzzQueryString(f *testing.F) {
	for _, q := range []string{"", "pool=a", "kind=move,keep&since=1h", "limit=1000&until=9999-12-31T23:59:59Z", "%", "a;b"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		values, err := url.ParseQuery(q)
		if err != nil {
			return
		}
		filter, err := web.ParseFilter(values, now)
		if err != nil {
			return
		}
		if filter.Limit < 1 || filter.Limit > web.MaxLimit || !filter.NewestFirst {
			t.Errorf("%q gives the unbounded filter %+v", q, filter)
		}
		if !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
			t.Errorf("%q gives a filter that selects nothing: %+v", q, filter)
		}
	})
}
