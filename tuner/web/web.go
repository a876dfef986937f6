// Package web is the tuner's HTTP side: health, metrics, an API that says what
// the loops are doing and what they decided, commands for operators, and a page
// for people.
//
//	/                               the pools, for people; /pools/{pool} one of them
//	/pools/{pool}/{verb}            the form of a command
//	/healthz                        200 while the process serves
//	/readyz                         200 when every pool is being tuned, else 503 and why
//	/metrics                        Prometheus exposition
//	/api/v1/status                  every pool, or ?pool=
//	/api/v1/decisions               newest first; ?pool, ?kind, ?since, ?until, ?limit
//	/api/v1/decisions/{id}          one decision with its evidence; ?pool
//	/api/v1/pools/{pool}/timeline   parameters and objective of the last hours
//	/api/v1/pools/{pool}/{verb}     POST: pause, resume, revert, approve, reject
//
// Everything is read-only until tokens or client certificates are configured;
// see gate.go for who may command. It must not know how pools are tuned, where
// documents live or who listens.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Pool is one loop; tuner.Tuner is one.
type Pool interface {
	Status() tuner.Status
	Timeline() []tuner.Point
	Obey(ctx context.Context, now time.Time, o tuner.Command) (tuner.Receipt, error)
}

// Pools are the loops there are; they may come and go between two requests.
type Pools interface {
	Pools() []Pool
}

// Fixed are pools that stay.
type Fixed []Pool

// Pools implements Pools.
func (f Fixed) Pools() []Pool { return f }

// History is where decisions are read; store.History is one.
type History interface {
	Query(store.Filter) ([]store.Decision, error)
	Get(pool, id string) (store.Decision, error)
	Pools() ([]string, error)
}

// Options are what the handler shows, and who may command. All but Version,
// TokenFile, Settings and ClientCertificates are required.
type Options struct {
	// Version of the binary, as the status tells it.
	Version  string
	Pools    Pools
	History  History
	Gatherer prometheus.Gatherer
	// Now is the clock that ?since=1h and ?until=1h count back from.
	Now    func() time.Time
	Logger *slog.Logger
	// TokenFile lists the operators, one a line: NAME TOKEN. It is read at each
	// command.
	TokenFile string
	// Settings lists a pool's configuration, without secrets; nil lists none.
	Settings func(pool string) []tuner.Setting
	// ClientCertificates tells that the server verifies those it is shown; who has
	// one is an operator.
	ClientCertificates bool
}

// Bounds on the work that requests can cause.
const (
	// maxScrapes and maxReads are served at a time, of /metrics and of the
	// history; readers beyond them wait for their turn.
	maxScrapes = 8
	maxReads   = 4
	// maxBody is more than any command needs.
	maxBody = 8 << 10
)

type api struct {
	o    Options
	gate *gate
	// reads holds a token for each read of the history in progress.
	reads chan struct{}
}

// New returns the handler.
func New(o Options) (http.Handler, error) {
	if o.Pools == nil || o.History == nil || o.Gatherer == nil || o.Now == nil || o.Logger == nil {
		return nil, errors.New("web: pools, history, gatherer, clock and logger are required")
	}
	gate, err := newGate(o)
	if err != nil {
		return nil, err
	}
	a := &api{o: o, gate: gate, reads: make(chan struct{}, maxReads)}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", a.healthz)
	mux.HandleFunc("/readyz", a.readyz)
	mux.Handle("/metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxScrapes,
	}))
	mux.HandleFunc("/api/v1/status", a.serve(a.status))
	mux.HandleFunc("/api/v1/decisions", a.serve(a.decisions))
	mux.HandleFunc("/api/v1/decisions/{id}", a.serve(a.decision))
	mux.HandleFunc("/api/v1/pools/{pool}/timeline", a.serve(a.timeline))
	mux.HandleFunc("/api/v1/pools/{pool}/{verb}", a.command)
	a.routePages(mux)
	mux.HandleFunc("/", a.serve(noSuchPath))
	return http.MaxBytesHandler(guarded(mux), maxBody), nil
}

// guarded refuses every method that could be meant to change something, but for
// commands, which are refused by the gate.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", contentPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		command := r.Method == http.MethodPost && (strings.HasPrefix(r.URL.Path, "/api/v1/pools/") || strings.HasPrefix(r.URL.Path, "/pools/") || r.URL.Path == "/logout")
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !command {
			w.Header().Set("Allow", "GET, HEAD")
			writeError(w, &Error{CodeMethod, "this path is read-only: use GET or HEAD"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func noSuchPath(r *http.Request) (any, error) {
	return nil, fail(CodeNotFound, "no such path: %q; there are /, /healthz, /readyz, /metrics, /api/v1/status, /api/v1/decisions and /api/v1/decisions/{id}", r.URL.Path)
}
