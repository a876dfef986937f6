package web

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/kvtuner/kvtuner/tuner"
)

// StatusResponse is the body of /api/v1/status.
type StatusResponse struct {
	Version string `json:"version"`
	// Ready tells that every pool shown is being tuned.
	Ready bool         `json:"ready"`
	Pools []PoolStatus `json:"pools"`
}

// PoolStatus is a tuner's status as the API tells it.
type PoolStatus struct {
	tuner.Status
	// NotReady says why the pool is not being tuned; empty if it is. A pool that
	// lacks data of its engines or of the plugin is not, whatever else goes well.
	NotReady string `json:"notReady,omitempty"`
}

func newPoolStatus(s tuner.Status) PoolStatus {
	p := PoolStatus{Status: s, NotReady: s.NotReady()}
	p.Ready = p.NotReady == ""
	return p
}

func (a *api) status(r *http.Request) (any, error) {
	values, err := parameters(r.URL.RawQuery, "pool")
	if err != nil {
		return nil, err
	}
	response := StatusResponse{Version: a.o.Version, Ready: true, Pools: []PoolStatus{}}
	want := values.Get("pool")
	for _, p := range a.statuses() {
		if want == "" || want == p.Pool {
			response.Pools = append(response.Pools, p)
			response.Ready = response.Ready && p.Ready
		}
	}
	if want != "" && len(response.Pools) == 0 {
		return nil, fail(CodeNotFound, "no pool %q is tuned here; there are: %s", want, strings.Join(a.names(), ", "))
	}
	return response, nil
}

func (a *api) statuses() []PoolStatus {
	pools := a.o.Pools.Pools()
	all := make([]PoolStatus, len(pools))
	for i, p := range pools {
		all[i] = newPoolStatus(p.Status())
	}
	return all
}

func (a *api) names() []string {
	pools := a.o.Pools.Pools()
	names := make([]string, len(pools))
	for i, p := range pools {
		names[i] = p.Status().Pool
	}
	return names
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// readyz lists the pools that are not ready, a line each: what kubectl describe
// shows of a failing probe.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	var reasons bytes.Buffer
	for _, s := range a.statuses() {
		if !s.Ready {
			fmt.Fprintf(&reasons, "pool %s: %s\n", s.Pool, strings.ReplaceAll(s.NotReady, "\n", "; "))
		}
	}
	if reasons.Len() > 0 {
		writeText(w, http.StatusServiceUnavailable, reasons.String())
		return
	}
	writeText(w, http.StatusOK, "ok\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
