package chaos

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// replica is one Endpoint Picker with the plugin.
type replica struct {
	name    string
	policy  *plugin.Policy
	metrics *collector
	// behind is how long a change takes to reach it.
	behind time.Duration
	// skew of its process's clock, which a step of the machine's does not move.
	skew       time.Duration
	scrapeSkew time.Duration
	dark       bool // not scraped
	refused    bool // its scrapes are older than what Prometheus has: a clock went back
	stuck      bool // does not read the store

	version int       // of the store's content, as read
	due     time.Time // when the next version is read
	newest  int64     // revision seen
	applied *store.Document
	stopped bool // by the kill switch, until it reads again
	// baselineSince is since when it does not run a candidate.
	baselineSince time.Time
	appliedAt     time.Time
}

// answered is a policy's decision on a request.
type answered struct {
	policy   *plugin.Policy
	decision plugin.Decision
}

// static are the parameters of an Endpoint Picker that has read no document.
var static = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}

// owner are the bounds that the Endpoint Picker's owner has set: a document may
// hold what lies outside them.
var owner = store.Bounds{
	MinExternalReusableTokens: store.TokenRange{Min: 1, Max: store.Never},
	MaxWaitingRequests:        store.WaitingRange{Min: 1, Max: 64},
}

func newReplica(name string, skew time.Duration, now func() time.Time) (*replica, error) {
	c := &collector{names: map[*prometheus.Desc]string{}}
	policy, err := plugin.New(plugin.Options{
		Pool: poolName, Now: func() time.Time { return now().Add(skew) }, Registerer: c,
		Config: plugin.Config{
			LoadPolicy: plugin.Threshold, MinExternalReusableTokens: static.MinExternalReusableTokens,
			MaxWaitingRequests: static.MaxWaitingRequests, ProbeFraction: 0.02,
			Tuning: &plugin.Tuning{File: "parameters.json", Bounds: owner},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return &replica{name: name, skew: skew, policy: policy, metrics: c}, nil
}

// stop obeys the kill switch.
func (r *replica) stop() {
	r.policy.Stop(store.ErrStopped)
	r.version, r.newest, r.applied, r.stopped = -1, 0, nil, true
}
