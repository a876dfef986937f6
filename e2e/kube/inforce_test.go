package kube

import (
	"slices"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// TestInForce measures from before a write to after the policy of an Endpoint
// Picker runs on it, which every request sees from then on.
func TestInForce(t *testing.T) {
	const changes = 200
	ns := namespace(t)
	s := open(t, ns, "latency", "tuner-0")
	policy := policyOf(t, "latency", time.Now)
	applied := make(chan time.Time, 1)
	updates := open(t, ns, "latency", "").Watch(t.Context())
	go func() {
		for u := range updates {
			if u.Err == nil && policy.Apply(u.Document) == nil {
				applied <- time.Now()
			}
		}
	}()
	took := make([]time.Duration, changes)
	for n := range changes {
		began := time.Now()
		if err := s.Swap(t.Context(), document("latency", int64(n+1), store.Tokens(n+1))); err != nil {
			t.Fatal(err)
		}
		took[n] = (<-applied).Sub(began)
		if got := policy.InForce().Revision; got != int64(n+1) {
			t.Fatalf("revision %d in force after change %d", got, n+1)
		}
	}
	slices.Sort(took)
	t.Logf("in force after %d changes: p50 %v, p99 %v, max %v", changes, took[changes/2], took[changes*99/100], took[changes-1])
}

func policyOf(t testing.TB, pool string, now func() time.Time) *plugin.Policy {
	t.Helper()
	config, err := plugin.ParseConfig([]byte(`{"loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8,
		"tuning":{"configMap":{"name":"kvtuner-` + pool + `"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := plugin.New(plugin.Options{Config: config, Pool: pool, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}
