package tuner

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kvtuner/kvtuner/store"
)

// A counter born with its first event hides that event from increase().
func TestDecisionsOfEveryKindAreCountedFromZero(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := newMetrics(r, "p", Enforce)
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(m.decisions); n != len(store.Kinds()) {
		t.Errorf("%d kinds are exported, there are %d", n, len(store.Kinds()))
	}
}

func TestBoundsAreExported(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := newMetrics(r, "p", Enforce)
	if err != nil {
		t.Fatal(err)
	}
	m.setBounds(store.Bounds{
		MinExternalReusableTokens: store.TokenRange{Min: 64, Max: store.Never},
		MaxWaitingRequests:        store.WaitingRange{Min: 2, Max: store.NoGate},
	})
	want := `
# HELP kvtuner_bound Ends of the bounds, min and max, by parameter; +Inf tokens is never load, a max of 0 waiting is no gate.
# TYPE kvtuner_bound gauge
kvtuner_bound{bound="max",parameter="maxWaitingRequests",pool="p"} 0
kvtuner_bound{bound="max",parameter="minExternalReusableTokens",pool="p"} +Inf
kvtuner_bound{bound="min",parameter="maxWaitingRequests",pool="p"} 2
kvtuner_bound{bound="min",parameter="minExternalReusableTokens",pool="p"} 64
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "kvtuner_bound"); err != nil {
		t.Error(err)
	}
}
