package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

const (
	aliceToken = "alice-0123456789abcdef"
	bobToken   = "bob-0123456789abcdef00"
)

// obedient keeps the commands it gets.
type obedient struct {
	pool
	got     []tuner.Command
	receipt tuner.Receipt
	err     error
}

func (o *obedient) Obey(_ context.Context, _ time.Time, c tuner.Command) (tuner.Receipt, error) {
	o.got = append(o.got, c)
	return o.receipt, o.err
}

// control serves an obedient pool "a" to operators alice and bob.
type control struct {
	t *testing.T
	http.Handler
	pool   *obedient
	tokens string
	log    *bytes.Buffer
	now    time.Time
}

func newControl(t *testing.T, change func(*web.Options)) *control {
	c := &control{t: t, tokens: filepath.Join(t.TempDir(), "tokens"), log: &bytes.Buffer{}, now: now}
	c.pool = &obedient{pool: pool{Pool: "a", Ready: true, Mode: tuner.Enforce, Doing: "watching the incumbent"}}
	c.writeTokens("# operators\nalice " + aliceToken + "\n\nbob\t" + bobToken + "\n")
	c.Handler = handler(t, func(o *web.Options) {
		o.Pools, o.TokenFile = web.Fixed{c.pool}, c.tokens
		o.Logger = slog.New(slog.NewTextHandler(c.log, nil))
		o.Now = func() time.Time { return c.now }
		if change != nil {
			change(o)
		}
	})
	return c
}

func (c *control) writeTokens(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.tokens, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// post sends a command with headers given as name, value, ...
func (c *control) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func (c *control) as(token, path, body string) *httptest.ResponseRecorder {
	return c.post(path, body, "Authorization", "Bearer "+token)
}

func TestCommandsReachThePool(t *testing.T) {
	record := decision(2, "a", store.KindMove)
	for name, tc := range map[string]struct {
		verb, body string
		want       tuner.Command
	}{
		"pause":             {"pause", `{}`, tuner.Command{Verb: tuner.Pause, Actor: "alice"}},
		"pause for a while": {"pause", `{"for":"2d","reason":" incident 7 "}`, tuner.Command{Verb: tuner.Pause, Actor: "alice", For: 48 * time.Hour, Reason: "incident 7"}},
		"who it is":         {"pause", `{"by":"Al ☺"}`, tuner.Command{Verb: tuner.Pause, Actor: "Al ☺ (alice)"}},
		"by the same name":  {"resume", `{"by":"alice"}`, tuner.Command{Verb: tuner.Resume, Actor: "alice"}},
		"revert":            {"revert", `{}`, tuner.Command{Verb: tuner.Revert, Actor: "alice", Target: tuner.ToKnownGood}},
		"revert to initial": {"revert", `{"to":"initial"}`, tuner.Command{Verb: tuner.Revert, Actor: "alice", Target: tuner.ToInitial}},
		"revert to record":  {"revert", fmt.Sprintf(`{"to":%q}`, record.ID), tuner.Command{Verb: tuner.Revert, Actor: "alice", Target: tuner.ToRecord, Record: record.ID, Params: record.To}},
		"approve":           {"approve", `{"proposal":"p1"}`, tuner.Command{Verb: tuner.Approve, Actor: "alice", Proposal: "p1"}},
		"reject":            {"reject", `{"proposal":"p1","reason":"no"}`, tuner.Command{Verb: tuner.Reject, Actor: "alice", Proposal: "p1", Reason: "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t, nil)
			c.pool.receipt.Decision = record
			w := c.as(aliceToken, "/api/v1/pools/a/"+tc.verb, tc.body)
			if got := decode[tuner.Receipt](t, w); w.Code != 200 || got.Decision.ID != record.ID {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if diff := cmp.Diff([]tuner.Command{tc.want}, c.pool.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if log := c.log.String(); strings.Contains(log, aliceToken) || !strings.Contains(log, "level=INFO msg=command pool=a") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		status  int
		code    web.Code
		says    string
	}{
		"nobody":               {nil, 401, web.CodeUnauthorized, "this needs a token"},
		"unknown token":        {[]string{"Authorization", "Bearer " + aliceToken + "x"}, 401, web.CodeUnauthorized, "not known"},
		"no token":             {[]string{"Authorization", "Bearer "}, 401, web.CodeUnauthorized, "not known"},
		"another scheme":       {[]string{"Authorization", "Basic " + aliceToken}, 401, web.CodeUnauthorized, "this needs a token"},
		"another site's page":  {[]string{"Authorization", "Bearer " + aliceToken, "Sec-Fetch-Site", "cross-site"}, 403, web.CodeForbidden, "another site"},
		"another site's form":  {[]string{"Authorization", "Bearer " + aliceToken, "Origin", "https://evil.example"}, 403, web.CodeForbidden, "another site"},
		"a form":               {[]string{"Authorization", "Bearer " + aliceToken, "Content-Type", "application/x-www-form-urlencoded"}, 400, web.CodeParameter, "send application/json"},
		"a session on the API": {[]string{"Cookie", "kvtuner_session=alice|9999999999|x"}, 401, web.CodeUnauthorized, "this needs a token"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t, nil)
			w := c.post("/api/v1/pools/a/pause", `{}`, tc.headers...)
			if e := decode[web.ErrorResponse](t, w); w.Code != tc.status || e.Error.Code != tc.code || !strings.Contains(e.Error.Message, tc.says) {
				t.Errorf("got %d %+v", w.Code, e.Error)
			}
			if w.Code == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
				t.Error("the answer does not say how to authenticate")
			}
			if len(c.pool.got) > 0 {
				t.Errorf("the pool got %+v", c.pool.got)
			}
			if log := c.log.String(); strings.Contains(log, aliceToken) || !strings.Contains(log, "command refused") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func TestWithoutOperatorsNothingIsObeyed(t *testing.T) {
	c := newControl(t, func(o *web.Options) { o.TokenFile = "" })
	for _, verb := range tuner.Verbs() {
		w := c.as(aliceToken, "/api/v1/pools/a/"+string(verb), `{}`)
		if e := decode[web.ErrorResponse](t, w); w.Code != 403 || !strings.Contains(e.Error.Message, "web.tokenFile") {
			t.Errorf("%s: %d %+v", verb, w.Code, e.Error)
		}
	}
	if len(c.pool.got) > 0 {
		t.Errorf("the pool got %+v", c.pool.got)
	}
}

func TestCommandsThatAreWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no such pool":        {"/api/v1/pools/x/pause", `{}`, 404, "there are: a"},
		"no such verb":        {"/api/v1/pools/a/explode", `{}`, 404, "there are pause, resume"},
		"not JSON":            {"/api/v1/pools/a/pause", `pause!`, 400, "not a command"},
		"nothing":             {"/api/v1/pools/a/pause", ``, 400, "not a command"},
		"a list":              {"/api/v1/pools/a/pause", `[]`, 400, "not a command"},
		"unknown field":       {"/api/v1/pools/a/pause", `{"four":"1h"}`, 400, `unknown field "four"`},
		"two commands":        {"/api/v1/pools/a/pause", `{}{}`, 400, "more than one"},
		"bad duration":        {"/api/v1/pools/a/pause", `{"for":"soon"}`, 400, `for "soon" is not allowed; a duration of 1m to 365d`},
		"no duration":         {"/api/v1/pools/a/pause", `{"for":"0s"}`, 400, `for "0s" is not allowed`},
		"too short":           {"/api/v1/pools/a/pause", `{"for":"1s"}`, 400, "for: "},
		"for of a resume":     {"/api/v1/pools/a/resume", `{"for":"1h"}`, 400, "for: "},
		"to of a pause":       {"/api/v1/pools/a/pause", `{"to":"initial"}`, 400, "to belongs to revert"},
		"control characters":  {"/api/v1/pools/a/pause", `{"reason":"a\nlevel=INFO msg=forged"}`, 400, "reason: "},
		"a long name":         {"/api/v1/pools/a/pause", `{"by":"` + strings.Repeat("x", 41) + `"}`, 400, "at most 40"},
		"a long reason":       {"/api/v1/pools/a/pause", `{"reason":"` + strings.Repeat("x", 501) + `"}`, 400, "reason: "},
		"a huge body":         {"/api/v1/pools/a/pause", `{"reason":"` + strings.Repeat("x", 1<<20) + `"}`, 400, "too large"},
		"no such record":      {"/api/v1/pools/a/revert", `{"to":"20200101T000000Z-0001"}`, 404, "to: known-good, initial"},
		"another pool's":      {"/api/v1/pools/a/revert", fmt.Sprintf(`{"to":%q}`, decision(7, "gone", store.KindAdopt).ID), 404, "not found"},
		"approve what":        {"/api/v1/pools/a/approve", `{}`, 400, "proposal: "},
		"the pool refuses":    {"/api/v1/pools/a/resume", `{"reason":"refuse"}`, 409, "not paused"},
		"the store is broken": {"/api/v1/pools/a/resume", `{"reason":"break"}`, 500, "disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t, nil)
			switch {
			case strings.Contains(tc.body, "refuse"):
				c.pool.err = fmt.Errorf("%w: pool a is not paused", tuner.ErrRefused)
			case strings.Contains(tc.body, "break"):
				c.pool.err = errors.New("disk full")
			}
			w := c.as(aliceToken, tc.path, tc.body)
			if e := decode[web.ErrorResponse](t, w); w.Code != tc.status || !strings.Contains(e.Error.Message, tc.says) {
				t.Errorf("got %d %+v", w.Code, e.Error)
			}
			if c.pool.err == nil && len(c.pool.got) > 0 {
				t.Errorf("the pool got %+v", c.pool.got)
			}
			if strings.Count(c.log.String(), "\n") != 1 {
				t.Errorf("want one line of log:\n%s", c.log)
			}
		})
	}
}

func TestCommandsArePosted(t *testing.T) {
	c := newControl(t, nil)
	w := get(c, "/api/v1/pools/a/pause")
	if w.Code != 405 || w.Header().Get("Allow") != "POST" || len(c.pool.got) > 0 {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
}

func TestPendingCommandIsAccepted(t *testing.T) {
	c := newControl(t, nil)
	c.pool.receipt.Pending = "disk full"
	if w := c.as(bobToken, "/api/v1/pools/a/pause", `{}`); w.Code != http.StatusAccepted {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestTokensAreRotated(t *testing.T) {
	c := newControl(t, nil)
	pause := func(token string) int { return c.as(token, "/api/v1/pools/a/pause", `{}`).Code }
	c.writeTokens("bob " + bobToken + "\n")
	if a, b := pause(aliceToken), pause(bobToken); a != 401 || b != 200 {
		t.Errorf("after the rotation: alice %d, bob %d", a, b)
	}
	c.writeTokens("bob short\n")
	if b := pause(bobToken); b != 500 {
		t.Errorf("with a broken file: %d", b)
	}
	if err := os.Remove(c.tokens); err != nil {
		t.Fatal(err)
	}
	if b := pause(bobToken); b != 500 {
		t.Errorf("without a file: %d", b)
	}
	if log := c.log.String(); strings.Contains(log, bobToken) {
		t.Errorf("log: %s", log)
	}
}

func TestTokenFilesThatAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                          "has no tokens",
		"# only a comment\n":        "has no tokens",
		"alice short\n":             "line 1: the token of alice has 5 characters",
		"0123456789abcdef\n":        "line 1 has 1 words",
		"alice secret-in two\n":     "line 1 has 3 words",
		"a b\nx 0123456789abcdef\n": "line 1: the token of a",
		"al/ce 0123456789abcdef\n":  "line 1: the name",
		strings.Repeat("# x\n", 20000) + "alice 0123456789abcdef\n": "larger than",
	} {
		c := &control{t: t, tokens: filepath.Join(t.TempDir(), "tokens")}
		c.writeTokens(text)
		_, err := web.New(web.Options{Pools: web.Fixed{}, History: broken{}, Gatherer: noMetrics{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler), TokenFile: c.tokens})
		if err == nil || !strings.Contains(err.Error(), "web.tokenFile: ") || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret-in") {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}

// Guessing is slowed down for the one who guesses, and for nobody else.
func TestFailedAttemptsAreLimited(t *testing.T) {
	c := newControl(t, nil)
	from := func(address, token string) int {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pools/a/pause", strings.NewReader(`{}`))
		r.RemoteAddr = address
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code == 429 && w.Header().Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		return w.Code
	}
	for range 10 {
		if code := from("[2001:db8::1]:1", "guess-0123456789abc"); code != 401 {
			t.Fatalf("got %d", code)
		}
	}
	if code := from("[2001:db8::2]:1", aliceToken); code != 429 {
		t.Errorf("the same network after ten guesses: %d", code)
	}
	if code := from("192.0.2.1:1", aliceToken); code != 200 {
		t.Errorf("another client: %d", code)
	}
	c.now = c.now.Add(time.Minute)
	if code := from("[2001:db8::1]:1", aliceToken); code != 200 {
		t.Errorf("a minute later: %d", code)
	}
}

func TestCommandsAreLimited(t *testing.T) {
	c := newControl(t, nil)
	for range 20 {
		if w := c.as(aliceToken, "/api/v1/pools/a/pause", `{}`); w.Code != 200 {
			t.Fatalf("got %d", w.Code)
		}
	}
	if w := c.as(bobToken, "/api/v1/pools/a/pause", `{}`); w.Code != 429 || len(c.pool.got) != 20 {
		t.Errorf("after 20 commands at once: %d, %d got through", w.Code, len(c.pool.got))
	}
}

func TestTimelineOfAPool(t *testing.T) {
	c := newControl(t, nil)
	if w := get(c, "/api/v1/pools/a/timeline"); w.Code != 200 || !strings.Contains(w.Body.String(), `"points": []`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := get(c, "/api/v1/pools/x/timeline"); w.Code != 404 {
		t.Errorf("of an unknown pool: %d", w.Code)
	}
}

// Whatever a body holds, a command is either refused in one line of log, or is one
// that a pool may accept.
func FuzzCommandBody(f *testing.F) {
	for _, body := range []string{`{}`, `{"for":"2h","reason":"x","by":"y"}`, `{"to":"initial"}`, `{"proposal":"p1"}`, `[`, "{\"reason\":\"\\u001b[2J\"}", `{"by":"\u202e"}`} {
		f.Add("pause", body)
		f.Add("revert", body)
	}
	f.Fuzz(func(t *testing.T, verb, body string) {
		c := newControl(t, nil)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.URL.Path = "/api/v1/pools/a/" + verb
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+aliceToken)
		c.ServeHTTP(httptest.NewRecorder(), r)
		for _, o := range c.pool.got {
			if err := o.Validate(); err != nil {
				t.Errorf("the pool got %+v: %v", o, err)
			}
		}
		if strings.Count(c.log.String(), "\n") > 1 || strings.Contains(c.log.String(), aliceToken) {
			t.Errorf("log: %s", c.log)
		}
	})
}
