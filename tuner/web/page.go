package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

//go:embed assets
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "assets/page.html"))

// contentPolicy lets a page load what this server serves, and nothing else.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// page is what every template gets.
type page struct {
	Title, Crumb, Version string
	// Live tells that the page keeps itself up to date.
	Live bool
	// Closed tells that nobody may command.
	Closed bool
	// Visitor is the operator who looks at it, empty if unknown; Form is what a
	// form must bring along, and CanLeave tells that it is a session.
	Visitor, Form string
	CanLeave      bool

	Text  string
	Pools []poolView
	Pool  *poolView
	Ask   *question
}

func (a *api) routePages(mux *http.ServeMux) {
	mux.HandleFunc("/{$}", a.index)
	mux.HandleFunc("/pools/{pool}", a.poolPage)
	mux.HandleFunc("/pools/{pool}/{verb}", a.confirm)
	mux.HandleFunc("/logout", a.logout)
	mux.Handle("/assets/", http.FileServerFS(assets))
}

func (a *api) newPage(r *http.Request, title string) page {
	p := page{Title: title, Version: a.o.Version, Closed: a.gate.closed()}
	if o, ok := a.gate.visitor(r, a.o.Now()); ok {
		_, certified := byCertificate(r)
		p.Visitor, p.Form, p.CanLeave = o.name, a.gate.form(o), !certified
	}
	return p
}

// render writes a page in one go: half of one would mislead.
func (a *api) render(w http.ResponseWriter, status int, name string, p page) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, p); err != nil {
		a.o.Logger.Error("drawing a page failed", "page", name, "err", err)
		writeError(w, &Error{CodeInternal, "the page cannot be drawn; see the daemon's log"})
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

func (a *api) renderError(w http.ResponseWriter, r *http.Request, e *Error) {
	p := a.newPage(r, http.StatusText(httpStatus[e.Code]))
	p.Text = e.Message
	a.render(w, httpStatus[e.Code], "message", p)
}

// index lists the pools; the page of a pool alone is the index.
func (a *api) index(w http.ResponseWriter, r *http.Request) {
	if pools := a.o.Pools.Pools(); len(pools) == 1 {
		a.drawPool(w, r, pools[0])
		return
	}
	p := a.newPage(r, "Pools")
	p.Live = true
	for _, s := range a.statuses() {
		p.Pools = append(p.Pools, viewOf(s))
	}
	a.render(w, http.StatusOK, "index", p)
}

func (a *api) poolPage(w http.ResponseWriter, r *http.Request) {
	pool, err := a.pool(r.PathValue("pool"))
	if err != nil {
		a.renderError(w, r, classify(err))
		return
	}
	a.drawPool(w, r, pool)
}

// shownDecisions are listed on the page, and maxMarks marked on the timeline.
const (
	shownDecisions = 12
	maxMarks       = 200
)

func (a *api) drawPool(w http.ResponseWriter, r *http.Request, pool Pool) {
	s := newPoolStatus(pool.Status())
	points := pool.Timeline()
	decisions, err := a.decisionsOf(r, s, points)
	if err != nil {
		a.o.Logger.Warn("the page shows the decisions since the start only", "pool", s.Pool, "err", err)
		decisions = s.Decisions
	}
	now := a.o.Now()
	v := viewOf(s)
	v.Trial, v.Proposal = trialOf(s), proposalOf(s, now)
	v.Bands, v.Axis = draw(present(points, s, now), decisions, now)
	for _, d := range decisions[:min(len(decisions), shownDecisions)] {
		v.Decisions = append(v.Decisions, entryOf(d, now))
	}
	if a.o.Settings != nil {
		v.Settings = a.o.Settings(s.Pool)
	}
	p := a.newPage(r, s.Pool)
	p.Live, p.Crumb, p.Pool = true, s.Pool, &v
	a.render(w, http.StatusOK, "pool", p)
}

// decisionsOf a pool, newest first: those on the timeline, or as many as are listed.
func (a *api) decisionsOf(r *http.Request, s PoolStatus, points []tuner.Point) ([]store.Decision, error) {
	release, err := a.turn(r.Context())
	if err != nil {
		return nil, err
	}
	defer release()
	f := store.Filter{Pool: s.Pool, NewestFirst: true, Limit: shownDecisions}
	found, err := List(a.o.History, f, a.names()...)
	if err != nil || len(found.Decisions) < shownDecisions || len(points) == 0 || found.Decisions[shownDecisions-1].Time.Before(points[0].Time) {
		return found.Decisions, err
	}
	f.Since, f.Limit = points[0].Time, maxMarks
	found, err = List(a.o.History, f, a.names()...)
	return found.Decisions, err
}

// question is what a form asks before it commands.
type question struct {
	Pool, Verb, Question, Effect, Do, Class string
	Problem, Reason, Proposal               string
	Lengths, Targets                        []option
}

type option struct {
	Value, Label string
	Chosen       bool
}

// confirm shows the form of a command, and takes it.
func (a *api) confirm(w http.ResponseWriter, r *http.Request) {
	pool, err := a.pool(r.PathValue("pool"))
	if err != nil {
		a.renderError(w, r, classify(err))
		return
	}
	s := pool.Status()
	ask, ok := askFor(s, tuner.Verb(r.PathValue("verb")))
	switch {
	case !ok:
		a.renderError(w, r, &Error{CodeNotFound, fmt.Sprintf("there is no command %q", r.PathValue("verb"))})
		return
	case a.gate.closed():
		a.renderError(w, r, &Error{CodeForbidden, readOnlyAdvice})
		return
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		e := a.submit(w, r)
		if e == nil {
			http.Redirect(w, r, "/pools/"+s.Pool, http.StatusSeeOther)
			return
		}
		ask.Problem, ask.Reason, status = e.Message, r.PostForm.Get("reason"), httpStatus[e.Code]
	}
	if ask.Targets != nil {
		ask.Targets = append(ask.Targets, a.recordedTargets(s.Pool)...)
	}
	p := a.newPage(r, ask.Question)
	p.Crumb, p.Ask = s.Pool, ask
	a.render(w, status, "confirm", p)
}

// submit carries out a form. Who sent it is known by the token in it, or by a
// session or certificate and what only this server's forms have.
func (a *api) submit(w http.ResponseWriter, r *http.Request) *Error {
	o, err := a.sender(w, r)
	if err == nil {
		f := r.PostForm
		var receipt tuner.Receipt
		receipt, err = a.execute(r, o, r.PathValue("pool"), r.PathValue("verb"), CommandRequest{
			Reason: f.Get("reason"), For: f.Get("for"), To: f.Get("to"), Proposal: f.Get("proposal"),
		})
		if err == nil && receipt.Pending != "" {
			err = fmt.Errorf("accepted, but not done yet; the daemon goes on trying: %s", receipt.Pending)
		}
	}
	if err == nil {
		return nil
	}
	e := classify(err)
	a.refused(r, e)
	return e
}

func (a *api) sender(w http.ResponseWriter, r *http.Request) (operator, error) {
	if err := r.ParseForm(); err != nil {
		return operator{}, fail(CodeParameter, "the form cannot be read: %v", err)
	}
	now := a.o.Now()
	if err := a.gate.admit(r, now); err != nil {
		return operator{}, err
	}
	if token := strings.TrimSpace(r.PostForm.Get("token")); token != "" {
		o, err := a.gate.token(token)
		if err == nil {
			a.gate.open(w, r, o, now)
		}
		return o, err
	}
	o, ok := a.gate.visitor(r, now)
	switch {
	case !ok:
		return o, &Error{CodeUnauthorized, "your operator token is needed"}
	case !a.gate.made(o, r.PostForm.Get("form")):
		return o, &Error{CodeForbidden, "this form is out of date; send it again"}
	}
	return o, nil
}

func (a *api) logout(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && a.gate.origin.Check(r) == nil {
		http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// recordedTargets are what earlier decisions left in force, the latest of each.
func (a *api) recordedTargets(pool string) []option {
	found, err := List(a.o.History, store.Filter{
		Pool: pool, NewestFirst: true, Limit: 20,
		Kinds: []store.Kind{store.KindAdopt, store.KindMove, store.KindRecover, store.KindDrift, store.KindRollback, store.KindRevert},
	}, pool)
	if err != nil {
		return nil
	}
	var all []option
	seen := map[store.Params]bool{}
	for _, d := range found.Decisions {
		if p := tuner.LeftInForce(d); !seen[p] {
			seen[p] = true
			all = append(all, option{Value: d.ID, Label: fmt.Sprintf("%s, in force since %s (%s)", p, d.Time.UTC().Format("2 Jan 15:04 UTC"), d.Kind)})
		}
	}
	return all
}

// askFor words the form of a verb; ok is false if there is none.
func askFor(s tuner.Status, v tuner.Verb) (ask *question, ok bool) {
	ask = &question{Pool: s.Pool, Verb: string(v), Class: "main"}
	switch v {
	case tuner.Pause:
		ask.Question, ask.Do = "Pause tuning of "+s.Pool+"?", "Pause tuning"
		ask.Effect = "What is in force stays. A trial is withdrawn at once, and nothing is tried until the pause ends. It survives a restart."
		ask.Lengths = []option{{"", "until someone resumes it", false}, {"30m", "30 minutes", false}, {"2h", "2 hours", true}, {"8h", "8 hours", false}, {"1d", "a day", false}, {"7d", "a week", false}}
	case tuner.Resume:
		ask.Question, ask.Do = "Resume tuning of "+s.Pool+"?", "Resume tuning"
		ask.Effect = "The pool is tuned again from its next sample on."
	case tuner.Revert:
		ask.Question, ask.Do, ask.Class = "Revert "+s.Pool+"?", "Revert", "warn"
		ask.Effect = "Goes back to earlier parameters at once and withdraws a trial. What is left is not proposed again for a while. Tuning goes on later; pause it first to stay there."
		if s.KnownGood != nil {
			ask.Targets = append(ask.Targets, option{string(tuner.ToKnownGood), "the last known good, " + s.KnownGood.String(), true})
		}
		ask.Targets = append(ask.Targets, option{string(tuner.ToInitial), "the initial parameters of the configuration", s.KnownGood == nil})
	case tuner.Approve, tuner.Reject:
		return askAbout(s, ask, v), true
	default:
		return nil, false
	}
	return ask, true
}

func askAbout(s tuner.Status, ask *question, v tuner.Verb) *question {
	what := "the proposal"
	if p := s.Proposal; p != nil {
		ask.Proposal, what = p.ID, words(p.Candidate)
	}
	if v == tuner.Approve {
		ask.Question, ask.Do = "Try this on "+s.Pool+"?", "Approve the trial"
		ask.Effect = "Tries: " + what + ". The trial alternates with what is in force, is guarded by the SLO, and is kept only if it is better."
		return ask
	}
	ask.Question, ask.Do, ask.Class = "Reject the proposal for "+s.Pool+"?", "Reject", "warn"
	ask.Effect = "Not tried, and not proposed again for a while: " + what + "."
	return ask
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
