package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/tuner"
)

// CommandRequest is the body of POST /api/v1/pools/{pool}/{verb}; the verbs are
// pause, resume, revert, approve and reject, and each field is optional.
type CommandRequest struct {
	// By is what the caller calls itself; the record names whoever the token or the
	// certificate stands for, too.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// For is how long a pause lasts, such as 90m or 2d; until resumed if empty.
	For string `json:"for,omitempty"`
	// To is where a revert leads: known-good (if empty), initial, or the ID of a
	// decision, for what that left in force.
	To string `json:"to,omitempty"`
	// Proposal that is approved or rejected, by its ID.
	Proposal string `json:"proposal,omitempty"`
}

// commandTimeout bounds the wait for a pool's turn and its store.
const commandTimeout = 20 * time.Second

func (a *api) command(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, &Error{CodeMethod, "commands are sent with POST"})
		return
	}
	receipt, err := a.order(r)
	if err != nil {
		e := classify(err)
		a.refused(r, e)
		if e.Code == CodeUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="kvtuner"`)
		}
		writeError(w, e)
		return
	}
	status := http.StatusOK
	if receipt.Pending != "" {
		status = http.StatusAccepted
	}
	if err := writeJSON(w, status, receipt); err != nil {
		writeError(w, classify(err))
	}
}

// order is a program's command: who, then what, then its execution.
func (a *api) order(r *http.Request) (tuner.Receipt, error) {
	if err := a.gate.admit(r, a.o.Now()); err != nil {
		return tuner.Receipt{}, err
	}
	who, err := a.gate.client(r)
	if err != nil {
		return tuner.Receipt{}, err
	}
	// A form of another site cannot have this type.
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return tuner.Receipt{}, fail(CodeParameter, "content type %q is not allowed; send application/json", r.Header.Get("Content-Type"))
	}
	var c CommandRequest
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return tuner.Receipt{}, fail(CodeParameter, "the body is not a command: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return tuner.Receipt{}, fail(CodeParameter, "the body has more than one command")
	}
	return a.execute(r, who, r.PathValue("pool"), r.PathValue("verb"), c)
}

// execute a command of an operator whom the gate has let in.
func (a *api) execute(r *http.Request, who operator, name, verb string, c CommandRequest) (tuner.Receipt, error) {
	pool, err := a.pool(name)
	if err != nil {
		return tuner.Receipt{}, err
	}
	o, err := a.parseCommand(who, name, verb, c)
	if err != nil {
		return tuner.Receipt{}, err
	}
	now := a.o.Now()
	if !a.gate.commands.count(name, now) {
		return tuner.Receipt{}, &Error{CodeLimit, fmt.Sprintf("too many commands for pool %s; wait a minute", name)}
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandTimeout)
	defer cancel()
	receipt, err := pool.Obey(ctx, now, o)
	if err != nil {
		return receipt, err
	}
	a.o.Logger.Info("command", "pool", name, "verb", o.Verb, "by", o.Actor, "client", clientOf(r), "decision", receipt.Decision.ID, "pending", receipt.Pending)
	return receipt, nil
}

func (a *api) parseCommand(who operator, pool, verb string, c CommandRequest) (tuner.Command, error) {
	o := tuner.Command{Verb: tuner.Verb(verb), Actor: who.name, Reason: strings.TrimSpace(c.Reason), Proposal: c.Proposal}
	if !slices.Contains(tuner.Verbs(), o.Verb) {
		return o, fail(CodeNotFound, "there is no command %q; there are pause, resume, revert, approve and reject", verb)
	}
	if by := strings.TrimSpace(c.By); by != "" && by != who.name {
		if len(by) > 40 {
			return o, fail(CodeParameter, "by has %d bytes; at most 40", len(by))
		}
		o.Actor = fmt.Sprintf("%s (%s)", by, who.name)
	}
	if c.For != "" {
		var err error
		if o.For, err = ParseFor(c.For); err != nil {
			return o, err
		}
	}
	if o.Verb == tuner.Revert {
		if err := a.aim(&o, pool, strings.TrimSpace(c.To)); err != nil {
			return o, err
		}
	} else if c.To != "" {
		return o, fail(CodeParameter, "to belongs to revert, not to %s", o.Verb)
	}
	return o, o.Validate()
}

// ParseFor reads how long a pause is to last. It may not be 0, which elsewhere means
// that there is no end. Errors are of type *Error.
func ParseFor(s string) (time.Duration, error) {
	d, err := model.ParseDuration(strings.TrimSpace(s))
	if err != nil || d == 0 {
		return 0, fail(CodeParameter, "for %q is not allowed; a duration of 1m to 365d, such as 90m, 8h or 2d", s)
	}
	return time.Duration(d), nil
}

// aim a revert: at a name, or at what a decision of the pool left in force.
func (a *api) aim(o *tuner.Command, pool, to string) error {
	switch target := tuner.Target(to); target {
	case "":
		o.Target = tuner.ToKnownGood
	case tuner.ToKnownGood, tuner.ToInitial:
		o.Target = target
	default:
		d, err := a.o.History.Get(pool, to)
		if err != nil {
			return fmt.Errorf("to: known-good, initial or the ID of a decision: %w", err)
		}
		o.Target, o.Record, o.Params = tuner.ToRecord, d.ID, tuner.LeftInForce(d)
	}
	return nil
}

func (a *api) pool(name string) (Pool, error) {
	for _, p := range a.o.Pools.Pools() {
		if p.Status().Pool == name {
			return p, nil
		}
	}
	return nil, fail(CodeNotFound, "no pool %q is tuned here; there are: %s", name, strings.Join(a.names(), ", "))
}

// refused counts and logs a command that was not let in. What it brought along is
// not logged.
func (a *api) refused(r *http.Request, e *Error) {
	if e.Code == CodeUnauthorized {
		a.gate.failures.count(clientOf(r), a.o.Now())
	}
	a.o.Logger.Warn("command refused", "path", r.URL.Path, "client", clientOf(r), "code", e.Code, "why", e.Message)
}

// TimelineResponse is the body of /api/v1/pools/{pool}/timeline.
type TimelineResponse struct {
	// Points since the daemon's start, of the last six hours, oldest first.
	Points []tuner.Point `json:"points"`
}

func (a *api) timeline(r *http.Request) (any, error) {
	if _, err := parameters(r.URL.RawQuery); err != nil {
		return nil, err
	}
	p, err := a.pool(r.PathValue("pool"))
	if err != nil {
		return nil, err
	}
	return TimelineResponse{append([]tuner.Point{}, p.Timeline()...)}, nil
}
