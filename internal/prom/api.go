package prom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/annotations"
)

// maxBody is the largest request body in bytes: room for any query, and a bound
// on what a client can make the server hold.
const maxBody = 1 << 20

// maxNotes is how many warnings and how many infos a reply carries at most.
const maxNotes = 10

// Handler serves Prometheus' HTTP API v1: query, query_range, series, labels,
// label/<name>/values, metadata and status/buildinfo, and /-/ready and
// /-/healthy. Errors have Prometheus' JSON form and status codes.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, e := range map[string]endpoint{
		"/api/v1/query":       s.query,
		"/api/v1/query_range": s.queryRange,
		"/api/v1/series":      s.series,
		"/api/v1/labels":      s.labelNames,
	} {
		mux.Handle("GET "+path, s.serve(e))
		mux.Handle("POST "+path, s.serve(e))
	}
	mux.Handle("GET /api/v1/label/{name}/values", s.serve(s.labelValues))
	mux.Handle("GET /api/v1/metadata", s.serve(s.metadata))
	mux.Handle("GET /api/v1/status/buildinfo", s.serve(s.buildInfo))
	mux.HandleFunc("GET /-/healthy", s.probe("Healthy"))
	mux.HandleFunc("GET /-/ready", s.probe("Ready"))
	return mux
}

// reply is what an endpoint found.
type reply struct {
	data any
	// query is the expression that notes refer to.
	query string
	notes annotations.Annotations
	// release frees what data points into, once it was encoded. It may be nil.
	release func()
}

// endpoint answers a request whose form was parsed. A failed one returns no
// release function.
type endpoint func(r *http.Request) (reply, error)

// serve turns an endpoint into a handler.
func (s *Server) serve(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := s.use()
		if err != nil {
			s.refuse(w, apiError{unavailable, err})
			return
		}
		defer release()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()

		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := r.ParseForm(); err != nil {
			s.refuse(w, badData("request body or query string of at most %d bytes cannot be parsed: %w", maxBody, err))
			return
		}
		answer, err := e(r)
		if err != nil {
			s.refuse(w, err)
			return
		}
		if answer.release != nil {
			defer answer.release()
		}
		warnings, infos := answer.notes.AsStrings(answer.query, maxNotes, maxNotes)
		slices.Sort(warnings)
		slices.Sort(infos)
		s.send(w, http.StatusOK, envelope{Status: "success", Data: answer.data, Warnings: warnings, Infos: infos})
	})
}

// envelope is the outermost object of every reply.
type envelope struct {
	Status    string   `json:"status"`
	Data      any      `json:"data,omitempty"`
	ErrorType string   `json:"errorType,omitempty"`
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Infos     []string `json:"infos,omitempty"`
}

func (s *Server) send(w http.ResponseWriter, status int, e envelope) {
	body, err := json.Marshal(e)
	if err != nil {
		s.o.Logger.Error("reply cannot be encoded", "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.o.Logger.Debug("reply cannot be sent", "err", err)
	}
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	e := classify(err)
	s.send(w, e.class.status, envelope{Status: "error", ErrorType: e.class.name, Error: e.Error()})
}

// class is a kind of error in Prometheus' API.
type class struct {
	name   string
	status int
}

var (
	bad         = class{"bad_data", http.StatusBadRequest}
	execution   = class{"execution", http.StatusUnprocessableEntity}
	canceled    = class{"canceled", 499}
	timeout     = class{"timeout", http.StatusServiceUnavailable}
	unavailable = class{"unavailable", http.StatusServiceUnavailable}
	internal    = class{"internal", http.StatusInternalServerError}
)

type apiError struct {
	class class
	error
}

func (e apiError) Unwrap() error { return e.error }

func badData(format string, args ...any) error { return apiError{bad, fmt.Errorf(format, args...)} }

// classify finds the class of an error that an endpoint returned.
func classify(err error) apiError {
	var (
		known    apiError
		timedOut promql.ErrQueryTimeout
		stopped  promql.ErrQueryCanceled
		storage  promql.ErrStorage
	)
	switch {
	case errors.As(err, &known):
		return apiError{known.class, err}
	case errors.As(err, &timedOut), errors.Is(err, context.DeadlineExceeded):
		return apiError{timeout, err}
	case errors.As(err, &stopped), errors.Is(err, context.Canceled):
		return apiError{canceled, err}
	case errors.As(err, &storage):
		return apiError{internal, err}
	}
	return apiError{execution, err}
}

// probe answers a health check until the server closes.
func (s *Server) probe(state string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if s.life.Err() != nil {
			http.Error(w, ErrClosed.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "Prometheus Server is %s.\n", state)
	}
}
