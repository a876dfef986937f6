package plugin

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/store"
)

// Everything at once: no decision goes uncounted, no counter goes down, no
// revision goes back, and each decision is of an arm and revision that belong
// together.
func TestConcurrentUse(t *testing.T) {
	const workers, each = 8, 400
	reg := prometheus.NewPedanticRegistry()
	var mu sync.Mutex
	at := newClock().t
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Millisecond)
		return at
	}
	p, err := New(Options{Config: weighingConfig(), Pool: "p", Now: now, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				name := "pod-" + strconv.Itoa((w+i)%5)
				p.Observe(name, i%20, now())
				p.ObserveRunning(name, i%20, now())
				d := p.Decide(request(strconv.Itoa(i), name, i%64))
				if odd := d.Revision%2 == 1; odd != (d.Arm == store.ArmCandidate) {
					t.Errorf("revision %d with arm %s", d.Revision, d.Arm)
				}
				p.ObserveFirstToken(d, time.Millisecond, i)
				if i%50 == w {
					p.Forget(name)
				}
			}
		})
	}
	wg.Go(func() {
		for revision := int64(1); revision <= each; revision++ {
			doc := withCosts(document(revision, now(), small), costs)
			if revision%2 == 1 { // odd revisions are all candidate
				withTrial(doc, large, all)
			}
			if err := p.Apply(doc); err != nil {
				t.Error(err)
			}
			_ = p.Apply(document(revision-1, now(), small))
		}
	})
	wg.Go(func() {
		var decisions, revision float64
		for range 40 {
			d, r := sum(t, reg, "selective_kv_decisions_total"), sum(t, reg, "selective_kv_revision")
			if d < decisions || r < revision {
				t.Errorf("went back: decisions %v to %v, revision %v to %v", decisions, d, revision, r)
			}
			decisions, revision = d, r
		}
	})
	wg.Wait()
	for _, name := range []string{"selective_kv_decisions_total", "selective_kv_cost_started_total", "selective_kv_cost_finished_total"} {
		if got := sum(t, reg, name); got != workers*each {
			t.Errorf("%s: %v, want %d", name, got, workers*each)
		}
	}
}
