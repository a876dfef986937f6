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
	Ready bool           `json:"ready"`
	Pools []tuner.Status `json:"pools"`
}

func (a *api) status(r *http.Request) (any, error) {
	values, err := parameters(r.URL.RawQuery, "pool")
	if err != nil {
		return nil, err
	}
	response := StatusResponse{Version: a.o.Version, Ready: true, Pools: []tuner.Status{}}
	want, all := values.Get("pool"), a.statuses()
	for _, s := range all {
		if want == "" || want == s.Pool {
			response.Pools = append(response.Pools, s)
			response.Ready = response.Ready && s.Ready
		}
	}
	if want != "" && len(response.Pools) == 0 {
		return nil, fail(CodeNotFound, "no pool %q is tuned here; there are: %s", want, names(all))
	}
	return response, nil
}

// statuses of all pools. A pool whose data is missing is not being tuned,
// whatever else goes well, so it is not ready.
func (a *api) statuses() []tuner.Status {
	all := make([]tuner.Status, len(a.o.Pools))
	for i, p := range a.o.Pools {
		all[i] = p.Status()
		all[i].Ready = all[i].Ready && all[i].LastState != tuner.Unknown
	}
	return all
}

func names(all []tuner.Status) string {
	list := make([]string, len(all))
	for i, s := range all {
		list[i] = s.Pool
	}
	return strings.Join(list, ", ")
}

// NotReady says why a pool is not ready; it is empty for one that is.
func NotReady(s tuner.Status) string {
	switch {
	case s.Ready:
		return ""
	case s.Error != "":
		return s.Error
	case s.LastState == tuner.Unknown:
		return "data is missing: " + s.LastWhy
	default:
		return s.Doing
	}
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// readyz lists the pools that are not ready, a line each: what kubectl describe
// shows of a failing probe.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	var reasons bytes.Buffer
	for _, s := range a.statuses() {
		if why := NotReady(s); why != "" {
			fmt.Fprintf(&reasons, "pool %s: %s\n", s.Pool, strings.ReplaceAll(why, "\n", "; "))
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
