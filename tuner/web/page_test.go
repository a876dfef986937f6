package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// form sends a page's form.
func (c *control) form(path string, cookies []*http.Cookie, fields ...string) *httptest.ResponseRecorder {
	values := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, k := range cookies {
		r.AddCookie(k)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func (c *control) getWith(path string, cookies []*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, k := range cookies {
		r.AddCookie(k)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// signIn shows a token once, and returns the session and what forms must have.
func (c *control) signIn() ([]*http.Cookie, string) {
	c.t.Helper()
	w := c.form("/pools/a/pause", nil, "token", aliceToken)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/pools/a" {
		c.t.Fatalf("with a token: %d %s", w.Code, w.Body)
	}
	cookies := w.Result().Cookies()
	found := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(c.getWith("/pools/a/pause", cookies).Body.String())
	if len(cookies) != 1 || found == nil {
		c.t.Fatalf("cookies %v, form %v", cookies, found)
	}
	c.pool.got = nil
	return cookies, found[1]
}

func TestPagesSayWhatIsGoingOn(t *testing.T) {
	p := func(tokens store.Tokens, waiting int) store.Params {
		return store.Params{MinExternalReusableTokens: tokens, MaxWaitingRequests: waiting}
	}
	incumbent := p(1024, 8)
	base := tuner.Status{Pool: "a", Mode: tuner.Enforce, Ready: true, LastState: tuner.OK, Doing: "watching the incumbent", Incumbent: &incumbent}
	for name, tc := range map[string]struct {
		change func(*tuner.Status)
		says   []string
	}{
		"watching": {func(*tuner.Status) {}, []string{"Restore cached prefixes of 1\u202f024 tokens or more, unless 8 or more requests wait.", "Watching the incumbent.", `href="/pools/a/pause"`, `href="/pools/a/revert"`}},
		"paused": {func(s *tuner.Status) {
			s.Paused = &tuner.PauseStatus{Actor: "<alice>", Until: now, Reason: "x"}
		}, []string{"Paused by &lt;alice&gt; until", `href="/pools/a/resume"`}},
		"not ready": {func(s *tuner.Status) { s.Error = "disk <full>" }, []string{"kvtuner is not tuning this pool", "Disk &lt;full&gt;"}},
		"paused in the dark": {func(s *tuner.Status) {
			s.Paused, s.Error = &tuner.PauseStatus{Actor: "alice"}, "prometheus is down"
			s.Preflight = []tuner.Finding{{Check: "prometheus", Found: "it <hangs>", Setting: "prometheus.url", Fix: "correct it"}}
		}, []string{"Paused by alice until someone resumes it", "Prometheus is down.", "it &lt;hangs&gt;", "<code>prometheus.url</code>: correct it"}},
		"not begun":  {func(s *tuner.Status) { *s = tuner.Status{Pool: "a", Mode: tuner.Observe} }, []string{"Waiting for the first step", "unknown"}},
		"never load": {func(s *tuner.Status) { never := p(store.Never, 0); s.Incumbent = &never }, []string{"Never restore", "no limit"}},
		"any":        {func(s *tuner.Status) { all := p(1, 0); s.Incumbent = &all }, []string{"Restore whatever is cached, however many requests wait"}},
		"trial": {func(s *tuner.Status) {
			s.Trial = &tuner.TrialStatus{Candidate: p(4096, 8), Why: "the curves say so", Arm: store.ArmCandidate, Blocks: 2, MaxBlocks: 4,
				Effect: &store.Interval{Estimate: -0.05, Low: -0.09, High: -0.01, Confidence: 0.98, N: 2},
				Arms:   []store.ArmSummary{{Arm: store.ArmBaseline, Params: incumbent, Requests: 1234, Signals: map[string]float64{"costSeconds": 2.5}}}}
		}, []string{"Trying whether requests get cheaper: restore cached prefixes of 4\u202f096", "So far a request costs -5.0 % (-9.0 % to -1.0 %, 98.0 % sure)", "1\u202f234", "2.50 s", "Block 2 of at most 4"}},
		"proposal": {func(s *tuner.Status) {
			s.Mode, s.Proposal = tuner.Propose, &tuner.ProposalStatus{ID: "p1", Candidate: p(4096, 8), Why: "the curves say so", Until: now.Add(time.Hour)}
		}, []string{"A change waits for your approval", "Proposal p1 lapses in 1 h", `href="/pools/a/approve"`, `href="/pools/a/reject"`}},
		"approved": {func(s *tuner.Status) {
			s.Mode, s.Proposal = tuner.Propose, &tuner.ProposalStatus{ID: "p1", Candidate: p(4096, 8), Until: now, Approved: "bob"}
		}, []string{"Approved by bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t, nil)
			s := base
			tc.change(&s)
			c.pool.pool = pool(s)
			w := get(c, "/")
			for _, want := range append(tc.says, "What it did, newest first", "Reason 1") {
				if !strings.Contains(strings.ReplaceAll(w.Body.String(), "&#43;", "+"), want) {
					t.Errorf("status %d does not say %q:\n%s", w.Code, want, w.Body)
				}
			}
		})
	}
}

func TestPagesAreConfined(t *testing.T) {
	c := newControl(t, nil)
	for path, kind := range map[string]string{"/": "text/html", "/pools/a": "text/html", "/pools/a/revert": "text/html", "/assets/style.css": "text/css", "/assets/live.js": "javascript", "/assets/icon.svg": "image/svg"} {
		w := get(c, path)
		if w.Code != 200 || !strings.Contains(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%s: %d %s", path, w.Code, w.Header())
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if kind == "text/html" && regexp.MustCompile(`(?i)https?://|style=|<style|onclick|<script>`).MatchString(w.Body.String()) {
			t.Errorf("%s has something inline or from elsewhere:\n%s", path, w.Body)
		}
	}
	for _, path := range []string{"/pools/x", "/pools/x/pause", "/pools/a/explode", "/pools/<script>"} {
		if w := get(c, path); w.Code != 404 || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestReadOnlyPage(t *testing.T) {
	c := newControl(t, func(o *web.Options) { o.TokenFile = "" })
	if body := get(c, "/").Body.String(); !strings.Contains(body, "Read-only") || strings.Contains(body, "/pools/a/pause") {
		t.Errorf("the page offers what is not allowed:\n%s", body)
	}
	if w := c.form("/pools/a/pause", nil, "token", aliceToken); w.Code != 403 || len(c.pool.got) > 0 {
		t.Errorf("a form: %d", w.Code)
	}
}

func TestIndexOfSeveralPools(t *testing.T) {
	h := handler(t, nil)
	body := get(h, "/").Body.String()
	for _, want := range []string{`href="/pools/a"`, `href="/pools/b"`, "Waiting to take over the pool"} {
		if !strings.Contains(body, want) {
			t.Errorf("the index lacks %q:\n%s", want, body)
		}
	}
}

func TestFormsOfASession(t *testing.T) {
	c := newControl(t, nil)
	cookies, form := c.signIn()
	if k := cookies[0]; !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || strings.Contains(k.Value, aliceToken) {
		t.Errorf("cookie %+v", k)
	}
	bob := *cookies[0]
	bob.Value = strings.Replace(bob.Value, "alice", "bob", 1)
	for name, tc := range map[string]struct {
		cookies []*http.Cookie
		fields  []string
		status  int
	}{
		"session and form":   {cookies, []string{"form", form, "reason", "why", "for", "2h"}, 303},
		"no form":            {cookies, nil, 403},
		"another form":       {cookies, []string{"form", form + "x"}, 403},
		"no session":         {nil, []string{"form", form}, 401},
		"another's name":     {[]*http.Cookie{&bob}, []string{"form", form}, 401},
		"a wrong token":      {nil, []string{"token", "wrong-0123456789ab"}, 401},
		"a wrong duration":   {cookies, []string{"form", form, "for", "soon"}, 400},
		"a forged reason":    {cookies, []string{"form", form, "reason", "a\nb"}, 400},
		"a malformed cookie": {[]*http.Cookie{{Name: "kvtuner_session", Value: "a|b"}}, []string{"form", form}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			c.pool.got = nil
			w := c.form("/pools/a/pause", tc.cookies, tc.fields...)
			if w.Code != tc.status || (len(c.pool.got) == 1) != (tc.status == 303) {
				t.Errorf("got %d with %d commands", w.Code, len(c.pool.got))
			}
			if tc.status == 303 && c.pool.got[0] != (tuner.Command{Verb: tuner.Pause, Actor: "alice", Reason: "why", For: 2 * time.Hour}) {
				t.Errorf("command %+v", c.pool.got[0])
			}
			if tc.status != 303 && !strings.Contains(w.Body.String(), `role="alert"`) {
				t.Errorf("the page does not say what is wrong:\n%s", w.Body)
			}
		})
	}
}

func TestSessionEnds(t *testing.T) {
	c := newControl(t, nil)
	cookies, form := c.signIn()
	pause := func() int { return c.form("/pools/a/pause", cookies, "form", form).Code }
	c.now = now.Add(9 * time.Hour)
	if code := pause(); code != 401 {
		t.Errorf("after nine hours: %d", code)
	}
	c.now = now
	if code := pause(); code != 303 {
		t.Errorf("within eight: %d", code)
	}
	c.writeTokens("alice another-0123456789ab\nbob " + bobToken + "\n")
	if code := pause(); code != 401 {
		t.Errorf("after its token was taken out: %d", code)
	}
	if k := c.form("/logout", cookies).Result().Cookies(); len(k) != 1 || k[0].MaxAge >= 0 {
		t.Errorf("signing out: %+v", k)
	}
}

// Two names may share a token: a session is that of the name it was opened for.
func TestSessionOfASharedToken(t *testing.T) {
	c := newControl(t, nil)
	c.writeTokens("carol " + aliceToken + "\nalice " + aliceToken + "\n")
	cookies, form := c.signIn()
	if code := c.form("/pools/a/pause", cookies, "form", form).Code; code != 303 {
		t.Errorf("got %d", code)
	}
}

func TestPendingFormSaysSo(t *testing.T) {
	c := newControl(t, nil)
	c.pool.receipt.Pending = "disk full"
	if w := c.form("/pools/a/pause", nil, "token", aliceToken); !strings.Contains(w.Body.String(), "not done yet; the daemon goes on trying: disk full") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestRevertOffersWhatWasInForce(t *testing.T) {
	c := newControl(t, nil)
	good := store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 4}
	c.pool.KnownGood = &good
	body := get(c, "/pools/a/revert").Body.String()
	for _, want := range []string{"the last known good, 512&#43;4", `value="initial"`, fmt.Sprintf("value=%q", decision(2, "a", store.KindMove).ID)} {
		if !strings.Contains(body, want) {
			t.Errorf("the form lacks %q:\n%s", want, body)
		}
	}
}

// drawn is a pool with a past.
type drawn struct {
	pool
	points []tuner.Point
}

func (d drawn) Timeline() []tuner.Point { return d.points }

func TestTimelineIsDrawn(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes-60) * time.Minute) }
	incumbent, candidate := store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: store.NoGate}
	d := drawn{pool: pool{Pool: "a", Ready: true, Incumbent: &incumbent}}
	for n := range 60 {
		p := tuner.Point{Time: at(n), Arm: store.ArmBaseline, Params: incumbent, State: tuner.OK, Cost: 2 + 0.01*float64(n)}
		switch {
		case n >= 40 && n < 50:
			p.Arm, p.Params = store.ArmCandidate, candidate
		case n == 20:
			p.State, p.Cost = tuner.Unknown, 0
		}
		d.points = append(d.points, p)
	}
	for name, tc := range map[string]struct {
		points []tuner.Point
		count  map[string]int
	}{
		"nothing yet": {nil, map[string]int{"<svg": 0, "Samples appear here": 1}},
		"one sample":  {d.points[:1], map[string]int{"<svg": 3}},
		"no cost":     {[]tuner.Point{{Time: at(0), Params: incumbent}}, map[string]int{"<svg": 2}},
		// Cost: before and after the unknown sample, the candidate, and after it.
		"a trial": {d.points, map[string]int{"<svg": 3, `class="shade"`: 3, `class="line candidate"`: 3, `class="line baseline"`: 2 + 2 + 3, "never</output>": 0, ">1\u202f024</output>": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d.points = tc.points
			body := get(handler(t, func(o *web.Options) { o.Pools = web.Fixed{d} }), "/").Body.String()
			for what, want := range tc.count {
				if got := strings.Count(body, what); got != want {
					t.Errorf("%d of %s, want %d", got, what, want)
				}
			}
			if strings.Contains(body, "NaN") || strings.Contains(body, "Inf") {
				t.Error("a coordinate is not a number")
			}
		})
	}
}
