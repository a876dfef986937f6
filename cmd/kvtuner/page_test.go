//go:build web

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// pictures is where -update puts the screenshots that the documents show.
const pictures = "../../docs/img"

const pageToken = "0123456789abcdef"

// browser is a Chromium that reports what goes wrong in its pages.
type browser struct {
	t    *testing.T
	ctx  context.Context
	host string

	mu    sync.Mutex
	wrong []string
}

func openBrowser(t *testing.T, host string) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Fatal("there is no Chromium: install the package chromium (apt-get install chromium), and run this again")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, done := chromedp.NewContext(allocator)
	t.Cleanup(done)
	b := &browser{t: t, ctx: ctx, host: host}
	if err := chromedp.Listen(ctx, b.listen); err != nil { // starts it
		t.Fatal(err)
	}
	limited, limit := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(limit)
	b.ctx = limited
	send(b, network.Enable, network.EnableParams{})
	send(b, log.Enable, cdp.Empty{})
	send(b, runtime.Enable, cdp.Empty{})
	return b
}

// listen keeps console errors, exceptions, and requests that leave the host.
func (b *browser) listen(event any) {
	what := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what = fmt.Sprint("exception: ", e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			what = fmt.Sprintf("console: %v", e.Args)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			what = e.Entry.Text
		}
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.host) && !strings.HasPrefix(u, "data:") {
			what = "a request to " + u
		}
	}
	if what != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, what)
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// ask runs an action that has a result.
func ask[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// send a command of the protocol.
func send[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, c, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.host+path), chromedp.WaitReady(chromedp.CSS("footer")))
}

// says fails the test unless the text of an element has all of the parts.
func (b *browser) says(selector string, parts ...string) {
	b.t.Helper()
	text := ask(b, chromedp.Text(chromedp.CSS(selector)))
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.t.Errorf("%s does not say %q: %s", selector, p, text)
		}
	}
}

// holds evaluates what must be true of the page.
func (b *browser) holds(what, script string) {
	b.t.Helper()
	if !ask(b, chromedp.Evaluate[bool](script)) {
		b.t.Errorf("it does not hold that %s", what)
	}
}

// quiet fails the test for what went wrong so far, but for what is expected.
func (b *browser) quiet(expected ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		if !slices.ContainsFunc(expected, func(e string) bool { return strings.Contains(w, e) }) {
			b.t.Errorf("the browser complains: %s", w)
		}
	}
	b.wrong = nil
}

func (b *browser) size(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(chromedp.EmulateViewport(width, height))
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// picture of the whole page, kept with -update.
func (b *browser) picture(name string) {
	b.t.Helper()
	png := ask(b, chromedp.FullScreenshot(100))
	dir := b.t.TempDir()
	if *update {
		dir = pictures
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// accessible checks what a screen reader, a keyboard and a phone need.
func (b *browser) accessible() {
	b.t.Helper()
	b.holds("it has one heading of the first level, a language and a main part", `document.querySelectorAll("h1").length === 1 && document.documentElement.lang === "en" && document.querySelectorAll("main").length === 1`)
	b.holds("every picture has a name", `[...document.querySelectorAll("[role=img]")].every(e => e.getAttribute("aria-label"))`)
	b.holds("every section has a name", `[...document.querySelectorAll("section")].every(e => e.getAttribute("aria-label") || document.getElementById(e.getAttribute("aria-labelledby")) || e.querySelector("h1"))`)
	b.holds("every field has a label", `[...document.querySelectorAll("input:not([type=hidden]), select")].every(e => e.labels.length)`)
	b.holds("every link and button has words", `[...document.querySelectorAll("a, button")].every(e => e.textContent.trim())`)
	b.holds("nothing is wider than the screen", `document.documentElement.scrollWidth <= innerWidth`)
}

// recorded is a tuner whose commands are kept in the page's history, too.
type recorded struct {
	*tuner.Tuner
	history *store.History
}

func (r recorded) Obey(ctx context.Context, now time.Time, o tuner.Command) (tuner.Receipt, error) {
	receipt, err := r.Tuner.Obey(ctx, now, o)
	if err == nil {
		err = r.history.Append(receipt.Decision)
	}
	return receipt, err
}

// atTheTrial runs a fleet whose storage turns slow, in virtual time, up to the
// middle of a trial, and lets visit look at its page while time stands still.
func atTheTrial(t *testing.T, visit func(p recorded, now time.Time)) {
	t.Helper()
	clock := time.Time{}
	history, err := store.OpenHistory(store.HistoryOptions{Path: filepath.Join(t.TempDir(), "history.db"), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { history.Close() })
	phases := []lab.Phase{}
	for _, name := range []string{"8k-c32", "8k-c32-slow-storage"} {
		s, err := fleet.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, lab.Phase{Scenario: s, Duration: 50 * time.Minute})
	}
	policy, err := lab.ParsePolicy("tuned")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	visited := false
	_, err = lab.Run{Phases: phases, Policy: policy, Seed: 1, Progress: func(p lab.Progress) {
		clock = p.Now
		if p.Decision != nil {
			if err := history.Append(*p.Decision); err != nil {
				t.Error(err)
			}
		}
		s := p.Tuner.Status()
		if !visited && p.Elapsed > 52*time.Minute && s.Trial != nil && s.Trial.Effect != nil {
			visited = true
			visit(recorded{p.Tuner, history}, p.Now)
			stop()
		}
	}}.Do(ctx)
	if !visited {
		t.Fatalf("no trial came to evidence: %v", err)
	}
}

func servePage(t *testing.T, o web.Options) string {
	t.Helper()
	o.Version, o.Gatherer, o.Logger = "v1.2.3", prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	o.TokenFile = writeFile(t, "operators", "alice "+pageToken+"\n")
	handler, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func pageSettings(pool string) []tuner.Setting {
	s := tuner.DefaultSettings()
	s.Name = pool
	c := tuner.Config{
		Listen:     "127.0.0.1:9095",
		Prometheus: tuner.PrometheusConfig{URL: "https://user:hunter2@prometheus.example/?key=hunter2", Headers: []string{"X-Token: hunter2"}},
		Pools:      []tuner.PoolConfig{{Settings: s, Store: tuner.StoreConfig{File: "/var/lib/kvtuner/lab.json"}}},
	}
	return c.SettingsOf(c.Pools[0])
}

func TestPageInABrowser(t *testing.T) {
	atTheTrial(t, func(p recorded, now time.Time) {
		host := servePage(t, web.Options{Pools: web.Fixed{p}, History: p.history, Now: func() time.Time { return now }, Settings: pageSettings})
		b := openBrowser(t, host)
		b.size(1200, 900, false)
		b.open("/")
		b.says("h1", "Trying whether requests get cheaper")
		b.says("#trial", "So far a request costs", "candidate", "incumbent")
		b.says("#decisions", "Trying", "kvtuner explain")
		b.holds("three quantities are drawn, the candidate's stretch among them", `document.querySelectorAll("#timeline path").length >= 3 && document.querySelectorAll("#timeline .shade").length >= 1`)
		b.holds("no secret is shown", `!document.documentElement.outerHTML.includes("hunter2")`)
		b.accessible()
		b.picture("page-trial")
		b.size(1200, 900, true)
		b.picture("page-trial-dark")
		b.size(360, 740, false)
		b.accessible()
		b.picture("page-phone")
		b.quiet()
		pauseByKeyboard(b, p)
		resumeInTheSession(b, p)
		followsWithoutReload(b, p, now)
		worksWithoutScripts(b)
	})
}

// pauseByKeyboard reaches the command with the keyboard alone, with a wrong token
// first.
func pauseByKeyboard(b *browser, p recorded) {
	b.t.Helper()
	b.size(1200, 900, false)
	b.open("/")
	b.run(chromedp.Focus(chromedp.CSS(`a[href$="/pause"]`)), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("form")))
	b.says("h1", "Pause tuning of lab?")
	b.accessible()
	b.picture("page-pause")
	fill := func(token string) {
		b.run(chromedp.SetValue(chromedp.CSS(`[name=reason]`), "incident 7: <b>p99</b>"),
			chromedp.SendKeys(chromedp.CSS(`[name=token]`), token+kb.Enter), chromedp.WaitReady(chromedp.CSS("footer")))
	}
	fill("not-the-token-0123")
	b.run(chromedp.WaitVisible(chromedp.CSS(".problem")))
	b.says(".problem", "the token is not known")
	b.quiet("status of 401")
	if p.Status().Paused != nil {
		b.t.Error("a wrong token paused the pool")
	}
	fill(pageToken)
	b.run(chromedp.WaitVisible(chromedp.CSS("#hero.hold")))
	b.says("h1", "Paused by alice until", `("incident 7: <b>p99</b>")`)
	b.says("#decisions", "the trial of")
	b.holds("the trial is gone", `!document.getElementById("trial")`)
	b.picture("page-paused")
	if s := p.Status(); s.Paused == nil || s.Paused.Actor != "alice" || s.Trial != nil {
		b.t.Errorf("the pool: paused %v, trial %v", s.Paused, s.Trial)
	}
	b.quiet()
}

func resumeInTheSession(b *browser, p recorded) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(`a[href$="/resume"]`)), chromedp.WaitVisible(chromedp.CSS("form")))
	b.holds("no token is asked for again", `!document.querySelector("[name=token]")`)
	b.run(chromedp.Click(chromedp.CSS("form .button.main")), chromedp.WaitVisible(chromedp.CSS(`a[href$="/pause"]`)))
	if s := p.Status(); s.Paused != nil {
		b.t.Errorf("still %s", s.Paused)
	}
	b.run(chromedp.Click(chromedp.CSS("footer button")), chromedp.WaitNotPresent(chromedp.CSS("footer button")))
	b.quiet()
}

// followsWithoutReload changes the pool behind the page's back.
func followsWithoutReload(b *browser, p recorded, now time.Time) {
	b.t.Helper()
	b.open("/pools/lab")
	ask(b, chromedp.Evaluate[bool](`window.stayed = true`))
	if _, err := p.Obey(context.Background(), now.Add(time.Second), tuner.Command{Verb: tuner.Pause, Actor: "bob"}); err != nil {
		b.t.Fatal(err)
	}
	b.run(chromedp.WaitVisible(chromedp.CSS("#hero.hold")))
	b.says("h1", "Paused by bob")
	b.says("#live", "live")
	b.holds("the page was not loaded again", `window.stayed === true`)
	b.quiet()
}

func worksWithoutScripts(b *browser) {
	b.t.Helper()
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/")
	b.says("h1", "Paused by bob")
	b.run(chromedp.Click(chromedp.CSS(`a[href$="/revert"]`)), chromedp.WaitVisible(chromedp.CSS("form")))
	b.says("h1", "Revert lab?")
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
	b.quiet()
}

func TestIndexAndProposalInABrowser(t *testing.T) {
	history, err := seedHistory(filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { history.Close() })
	asking := fixturePool{
		Pool: "mistral", Mode: tuner.Propose, At: fixtureTime, Ready: true, LastState: tuner.OK, Doing: "waiting for an approval to try 4096+8", Incumbent: &fixtureBaseline,
		Proposal: &tuner.ProposalStatus{ID: "p20261130T155000Z", Candidate: store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 8},
			Why: "the cost curves predict 6.2% (± 1.1) less end-to-end time", Until: fixtureTime.Add(50 * time.Minute)},
		Recent: map[string]float64{"costSeconds": 2.04, "ttftMeanSeconds": 0.64, "withinSLO": 0.962, "waiting": 3.4},
	}
	b := openBrowser(t, servePage(t, web.Options{Pools: web.Fixed(append(fixturePools(), asking)), History: history, Now: fixtureNow, Settings: pageSettings}))
	b.size(1200, 700, false)
	b.open("/")
	b.says("#pools", "qwen", "llama", "mistral", "A change waits for your approval", "kvtuner is not tuning this pool")
	b.accessible()
	b.picture("page-index")
	b.run(chromedp.Click(chromedp.CSS(`a[href="/pools/mistral"]`)), chromedp.WaitVisible(chromedp.CSS("#proposal")))
	b.says("#proposal", "predict 6.2%", "lapses in 50 min")
	b.accessible()
	b.picture("page-proposal")
	b.run(chromedp.Click(chromedp.CSS(`a[href$="/approve"]`)), chromedp.WaitVisible(chromedp.CSS("form")))
	b.says("form", "Approve the trial")
	b.accessible()
	b.open("/pools/llama")
	b.says("#hero", "permission denied")
	b.says("#decisions", "<html>")
	b.quiet()
}
