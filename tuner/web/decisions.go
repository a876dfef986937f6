package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kvtuner/kvtuner/store"
)

// DecisionsResponse is the body of /api/v1/decisions.
type DecisionsResponse struct {
	// Decisions, newest first, without their evidence.
	Decisions []store.Decision `json:"decisions"`
	// Truncated tells that there are more than the limit.
	Truncated bool `json:"truncated"`
}

func (a *api) decisions(r *http.Request) (any, error) {
	values, err := parameters(r.URL.RawQuery, filterParameters...)
	if err != nil {
		return nil, err
	}
	f, err := ParseFilter(values, a.o.Now())
	if err != nil {
		return nil, err
	}
	release, err := a.turn(r.Context())
	if err != nil {
		return nil, err
	}
	defer release()
	return List(a.o.History, f, a.names()...)
}

// List reads the decisions that f selects, and drops their evidence: a list is
// for finding the one to explain. A pool that the history does not know is an
// Error, unless it is one of tuned, which may have decided nothing yet.
func List(h History, f store.Filter, tuned ...string) (DecisionsResponse, error) {
	limit := f.Limit
	f.Limit++
	found, err := h.Query(f)
	if err != nil {
		return DecisionsResponse{}, err
	}
	if len(found) == 0 && f.Pool != "" {
		if err := knownPool(h, f.Pool, tuned); err != nil {
			return DecisionsResponse{}, err
		}
	}
	truncated := len(found) > limit
	found = found[:min(len(found), limit)]
	for i := range found {
		found[i].Evidence = nil
	}
	return DecisionsResponse{Decisions: append([]store.Decision{}, found...), Truncated: truncated}, nil
}

func knownPool(h History, name string, tuned []string) error {
	known, err := h.Pools()
	if err != nil {
		return err
	}
	known = append(known, tuned...)
	if slices.Contains(known, name) {
		return nil
	}
	slices.Sort(known)
	return fail(CodeNotFound, "no pool %q has decisions; there are: %s", name, strings.Join(slices.Compact(known), ", "))
}

func (a *api) decision(r *http.Request) (any, error) {
	values, err := parameters(r.URL.RawQuery, "pool")
	if err != nil {
		return nil, err
	}
	release, err := a.turn(r.Context())
	if err != nil {
		return nil, err
	}
	defer release()
	return a.o.History.Get(values.Get("pool"), r.PathValue("id"))
}

// turn waits until fewer than maxReads requests read the history: a list holds
// its records in memory.
func (a *api) turn(ctx context.Context) (release func(), err error) {
	select {
	case a.reads <- struct{}{}:
		return func() { <-a.reads }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read the history: %w", context.Cause(ctx))
	}
}
