package prom

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestInstantQueriesShowTheLastScrape compares random histories of three pods
// with a model: what is visible is what the last scrape of each pod exposed.
func TestInstantQueriesShowTheLastScrape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, err := Open(Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		a := client(t, s)
		visible := map[string]map[string]string{}
		for n := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			for _, p := range []string{"a", "b", "c"} {
				shown, err := act(rt, s, n, p)
				if err != nil {
					rt.Fatal(err)
				}
				if shown != nil {
					visible[p] = shown
				}
			}
			want := map[string]string{}
			for _, shown := range visible {
				for k, v := range shown {
					want[k] = v
				}
			}
			got := vector(t, a, `label_replace({__name__=~"g.|up"}, "name", "$1", "__name__", "(.*)") + 0`, at(n))
			if fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Fatalf("after step %d:\ngot  %v\nwant %v", n, got, want)
			}
		}
	})
}

// act does one random thing to a pod and returns what is visible of it then;
// nil is no change.
func act(rt *rapid.T, s *Server, n int, p string) (map[string]string, error) {
	key := func(name string) string {
		return fmt.Sprintf(`{instance="%s:8000", job="vllm", name="%s", namespace="llm", pod="%s"}`, p, name, p)
	}
	switch rapid.SampledFrom([]string{"scrape", "scrape", "scrape", "fail", "drop", "nothing"}).Draw(rt, "act") {
	case "scrape":
		g, shown := exposition{}, map[string]string{key("up"): "1"}
		for _, name := range []string{"g1", "g2", "g3"} {
			if rapid.Bool().Draw(rt, "exposed") {
				v := rapid.IntRange(0, 3).Draw(rt, "value")
				g = append(g, gauge(name, float64(v)))
				shown[key(name)] = fmt.Sprint(v)
			}
		}
		return shown, s.Scrape(at(n), pod(p), g)
	case "fail":
		return map[string]string{key("up"): "0"}, s.ScrapeFailed(at(n), pod(p))
	case "drop":
		return map[string]string{}, s.Drop(at(n), pod(p))
	}
	return nil, nil
}

func TestWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Now: time.Now})
		must(t, s.Scrape(time.Now(), pod("a"), exposition{gauge("g", 1)}))
		time.Sleep(3 * time.Hour)
		must(t, s.Scrape(time.Now(), pod("a"), exposition{gauge("g", 2)}))
		v, _, _, err := client(t, s).Query(t.Context(), `sum(sum_over_time(g[4h]))`, time.Time{})
		must(t, err)
		if !strings.HasPrefix(v.String(), "{} => 3 @") {
			t.Errorf("got %s", v)
		}
	})
}

// FuzzAPI checks that whatever is asked, the answer is well-formed JSON with a
// status that fits.
func FuzzAPI(f *testing.F) {
	for _, form := range []string{
		"query=g", "query=sum(rate(g[1m]))&time=946681200", "query=1&start=0&end=10&step=1",
		"match[]=g&limit=1", "match[]={a=~%22(%22}", "query=g[5m]&timeout=1ms", "start=1e300", "query=%zz",
		"query=histogram_quantile(0.5,n)&time=9e11&lookback_delta=1y", "query=g@1e300", "query=g[292y]",
	} {
		f.Add(form)
	}
	s := open(f, Options{QueryTimeout: 100 * time.Millisecond})
	must(f, s.Scrape(at(0), pod("a"), exposition{gauge("g", 1)}))
	f.Fuzz(func(t *testing.T, form string) {
		for _, path := range []string{"query", "query_range", "series", "labels", "label/pod/values", "metadata"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL = &url.URL{Path: "/api/v1/" + path, RawQuery: form}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			var e envelope
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
				t.Fatalf("%s: %d %q: %v", path, w.Code, w.Body, err)
			}
			if (e.Status == "success") != (w.Code == http.StatusOK) || w.Code == http.StatusInternalServerError {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	})
}
