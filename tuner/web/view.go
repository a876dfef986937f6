package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// poolView is a pool in words, as its page shows it.
type poolView struct {
	Name, State, Tone, Mode, ModeWords string
	Headline, Detail                   string
	InForce, Tokens, Gate, Bounds      string
	Facts                              []tuner.Setting
	Actions                            []link
	Amiss                              []tuner.Finding
	Trial                              *trialView
	Proposal                           *proposalView
	Bands                              []band
	Axis                               []string
	Decisions                          []entry
	Settings                           []tuner.Setting
}

type link struct{ Verb, Label, Class string }

var modeWords = map[tuner.Mode]string{
	tuner.Observe: "decides and explains, publishes nothing",
	tuner.Propose: "asks before each trial",
	tuner.Enforce: "tries and moves by itself",
}

func viewOf(s PoolStatus) poolView {
	v := poolView{Name: s.Pool, Mode: string(s.Mode), ModeWords: modeWords[s.Mode], Tokens: "unknown", Gate: "unknown"}
	v.State, v.Tone, v.Headline, v.Detail = headline(s)
	if s.Incumbent != nil {
		v.InForce = "In force: " + words(*s.Incumbent) + "."
		v.Tokens, v.Gate = tokenWords(s.Incumbent.MinExternalReusableTokens), gateWords(s.Incumbent.MaxWaitingRequests)
	}
	v.Facts = facts(s.Recent)
	v.Actions, v.Amiss = actions(s), s.Preflight
	return v
}

// headline says in a chip, a colour, a sentence and another what the pool is at.
func headline(s PoolStatus) (state, tone, head, detail string) {
	now := "nothing is known yet"
	if s.Incumbent != nil {
		now = words(*s.Incumbent)
	}
	switch {
	case s.Paused != nil:
		detail = "In force meanwhile: " + now + "."
		if !s.Ready {
			detail += " " + sentence(s.NotReady) + "."
		}
		return "paused", "hold", sentence(s.Paused.String()) + ".", detail
	case !s.Ready:
		return "not tuning", "stop", "kvtuner is not tuning this pool.", sentence(s.NotReady) + ". What is in force stays."
	case s.Trial != nil:
		return "trial", "try", "Trying whether requests get cheaper: " + words(s.Trial.Candidate) + ".", "Until that is clear, it takes turns with what was in force before."
	case s.Proposal != nil && s.Proposal.Approved == "":
		return "asks you", "try", "A change waits for your approval.", "In force until then: " + now + "."
	}
	return "calm", "", sentence(now) + ".", sentence(s.Doing) + "."
}

func actions(s PoolStatus) []link {
	var all []link
	if p := s.Proposal; p != nil {
		if p.Approved == "" {
			all = append(all, link{"approve", "Approve…", "main"})
		}
		all = append(all, link{"reject", "Reject…", ""})
	}
	if s.Paused != nil {
		all = append(all, link{"resume", "Resume tuning…", "main"})
	} else {
		all = append(all, link{"pause", "Pause tuning…", ""})
	}
	if s.Mode != tuner.Observe {
		all = append(all, link{"revert", "Revert…", "warn"})
	}
	return all
}

func words(p store.Params) string {
	tokens := "restore cached prefixes of " + number(float64(p.MinExternalReusableTokens)) + " tokens or more"
	switch p.MinExternalReusableTokens {
	case store.Never:
		return "never restore, always compute prefixes anew"
	case 1:
		tokens = "restore whatever is cached"
	}
	if p.MaxWaitingRequests == store.NoGate {
		return tokens + ", however many requests wait"
	}
	return fmt.Sprintf("%s, unless %d or more requests wait", tokens, p.MaxWaitingRequests)
}

func tokenWords(t store.Tokens) string {
	switch t {
	case store.Never:
		return "never"
	case 1:
		return "1 token"
	}
	return number(float64(t)) + " tokens"
}

func gateWords(waiting int) string {
	if waiting == store.NoGate {
		return "no limit"
	}
	return fmt.Sprintf("%d or more wait", waiting)
}

// facts of the incumbent of late, those that a reader wants first.
func facts(recent map[string]float64) []tuner.Setting {
	var all []tuner.Setting
	add := func(signal, name string, show func(float64) string) {
		if v, ok := recent[signal]; ok {
			all = append(all, tuner.Setting{Name: name, Value: show(v)})
		}
	}
	add("costSeconds", "Cost of a request", seconds)
	add("ttftMeanSeconds", "Mean time to first token", seconds)
	add("withinSLO", "Within the SLO", percent)
	add("waiting", "Waiting requests", number)
	return all
}

func seconds(v float64) string {
	if v < 1 {
		return strconv.FormatFloat(1000*v, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + " s"
}

func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + " %" }

func signed(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) }

// number groups the thousands; fractions of small numbers stay.
func number(v float64) string {
	if math.Abs(v) < 100 && v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// sentence begins with a capital.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// reason as a sentence; one that begins with who commanded it keeps the name as it is.
func reason(d store.Decision) string {
	if d.Actor != "" && strings.HasPrefix(d.Reason, d.Actor) {
		return d.Reason
	}
	return sentence(d.Reason)
}

// trialView is a trial as its evidence comes in.
type trialView struct {
	Candidate, Incumbent, Why, Progress string
	Blocks                              []string
	Effect                              *effectView
	Arms                                []armView
}

type effectView struct {
	Words, Left, Right string
	Low, At, High      int
}

type armView struct {
	Arm                                        store.Arm
	Name, Params, Requests, Cost, TTFT, Within string
}

func trialOf(s PoolStatus) *trialView {
	t := s.Trial
	if t == nil || s.Incumbent == nil {
		return nil
	}
	v := &trialView{Candidate: sentence(words(t.Candidate)), Incumbent: sentence(words(*s.Incumbent)), Why: t.Why}
	now := "the incumbent's"
	if t.Arm == store.ArmCandidate {
		now = "the candidate's"
	}
	v.Progress = fmt.Sprintf("Block %d of at most %d of the candidate; now it is %s turn. Started %s.", t.Blocks, t.MaxBlocks, now, clock(t.Started))
	for n := 1; n <= max(t.MaxBlocks, t.Blocks); n++ {
		v.Blocks = append(v.Blocks, blockClass(n <= t.Blocks, store.ArmCandidate), blockClass(n < t.Blocks || n == t.Blocks && t.Arm == store.ArmBaseline, store.ArmBaseline))
	}
	if t.Effect != nil {
		v.Effect = effectOf(*t.Effect)
	}
	for _, a := range t.Arms {
		v.Arms = append(v.Arms, armOf(a))
	}
	return v
}

func blockClass(run bool, arm store.Arm) string {
	if run {
		return string(arm)
	}
	return "due"
}

func effectOf(i store.Interval) *effectView {
	reach := 1.1 * max(math.Abs(i.Low), math.Abs(i.High), 0.01)
	at := func(v float64) int { return int(math.Round(500 + 500*v/reach)) }
	return &effectView{
		Words: fmt.Sprintf("So far a request costs %s (%s to %s, %s sure)", signed(i.Estimate), signed(i.Low), signed(i.High), percent(i.Confidence)),
		Left:  signed(-reach), Right: signed(reach), Low: at(i.Low), At: at(i.Estimate), High: at(i.High),
	}
}

func armOf(a store.ArmSummary) armView {
	v := armView{Arm: a.Arm, Name: "incumbent", Params: a.Params.String(), Requests: number(a.Requests), Cost: "–", TTFT: "–", Within: "–"}
	if a.Arm == store.ArmCandidate {
		v.Name = "candidate"
	}
	if c, ok := a.Signals["costSeconds"]; ok {
		v.Cost = seconds(c)
	}
	if c, ok := a.Signals["ttftMeanSeconds"]; ok {
		v.TTFT = seconds(c)
	}
	if c, ok := a.Signals["withinSLO"]; ok {
		v.Within = percent(c)
	}
	return v
}

// proposalView is what waits for an answer.
type proposalView struct{ What, Why, Until string }

func proposalOf(s PoolStatus, now time.Time) *proposalView {
	p := s.Proposal
	if p == nil {
		return nil
	}
	v := &proposalView{What: sentence(words(p.Candidate)) + ".", Why: p.Why, Until: fmt.Sprintf("Proposal %s lapses in %s.", p.ID, about(p.Until.Sub(now)))}
	if p.Approved != "" {
		v.Until = fmt.Sprintf("Approved by %s: its trial starts when the pool is ready for it.", p.Approved)
	}
	return v
}

// entry is a decision in the list.
type entry struct{ ID, Kind, Class, Reason, Changed, Ago, Stamp, ISO string }

func entryOf(d store.Decision, now time.Time) entry {
	e := entry{
		ID: d.ID, Kind: string(d.Kind), Class: classOf(d), Reason: reason(d),
		Ago: about(now.Sub(d.Time)) + " ago", Stamp: clock(d.Time), ISO: d.Time.UTC().Format(time.RFC3339),
	}
	if left := tuner.LeftInForce(d); d.From != left && d.From != (store.Params{}) {
		e.Changed = fmt.Sprintf("in force: %s → %s", d.From, left)
	}
	return e
}

// classOf is a decision's colour: calm moves, trials, what is taken back or goes
// wrong, and what people did.
func classOf(d store.Decision) string {
	switch d.Kind {
	case store.KindMove, store.KindRecover:
		return "calm"
	case store.KindTrial, store.KindShed, store.KindPropose, store.KindSuggest:
		return "try"
	case store.KindAbort, store.KindRollback, store.KindHold:
		return "stop"
	case store.KindPause, store.KindRevert, store.KindApprove, store.KindReject, store.KindDrift, store.KindResume:
		return "hold"
	}
	return "dull"
}

// about rounds a duration to its largest unit.
func about(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
