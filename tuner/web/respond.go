package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Code says what kind of error it is, for programs.
type Code string

// Codes of errors, and the HTTP status each comes with.
const (
	CodeParameter Code = "bad_parameter"      // 400: a parameter is unknown or impossible
	CodeNotFound  Code = "not_found"          // 404: no such pool, decision or path
	CodeMethod    Code = "method_not_allowed" // 405: GET and HEAD read, POST commands
	CodeInternal  Code = "internal"           // 500: the daemon's log says more
	CodeBusy      Code = "busy"               // 503: the client left before its turn

	CodeUnauthorized Code = "unauthorized" // 401: no token or certificate that is known
	CodeForbidden    Code = "forbidden"    // 403: read-only, or from another site
	CodeRefused      Code = "refused"      // 409: the pool's state or mode does not allow it
	CodeLimit        Code = "rate_limited" // 429: too many attempts or commands
)

var httpStatus = map[Code]int{
	CodeParameter: http.StatusBadRequest,
	CodeNotFound:  http.StatusNotFound,
	CodeMethod:    http.StatusMethodNotAllowed,
	CodeInternal:  http.StatusInternalServerError,
	CodeBusy:      http.StatusServiceUnavailable,

	CodeUnauthorized: http.StatusUnauthorized,
	CodeForbidden:    http.StatusForbidden,
	CodeRefused:      http.StatusConflict,
	CodeLimit:        http.StatusTooManyRequests,
}

// Error is what the API answers instead of a result, as {"error": {...}}.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// ErrorResponse is the body around an Error.
type ErrorResponse struct {
	Error *Error `json:"error"`
}

func fail(code Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// serve turns what answer returns into JSON.
func (a *api) serve(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := answer(r)
		if err == nil {
			err = writeJSON(w, http.StatusOK, result)
		}
		if err == nil {
			return
		}
		e := classify(err)
		if e.Code == CodeInternal {
			a.o.Logger.Warn("answering a request failed", "path", r.URL.Path, "err", err)
		}
		writeError(w, e)
	}
}

// classify finds the code of an error of the history.
func classify(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, tuner.ErrRefused):
		return &Error{CodeRefused, err.Error()}
	case errors.Is(err, store.ErrNotFound):
		return &Error{CodeNotFound, err.Error()}
	case errors.Is(err, store.ErrInvalid):
		return &Error{CodeParameter, err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{CodeBusy, err.Error()}
	default:
		return &Error{CodeInternal, err.Error()}
	}
}

func writeError(w http.ResponseWriter, e *Error) {
	if e.Code == CodeLimit {
		w.Header().Set("Retry-After", "60")
	}
	// An Error always has a JSON form, and a client that left needs none.
	_ = writeJSON(w, httpStatus[e.Code], ErrorResponse{e})
}

// writeJSON encodes first, so that what has no JSON form becomes an error and
// not half a body.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
	return nil
}
