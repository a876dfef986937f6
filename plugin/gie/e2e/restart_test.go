//go:build e2e

package e2e

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// traffic is sent by clients of a gateway with retries, until it is stopped.
type traffic struct {
	stop                  chan struct{}
	clients               sync.WaitGroup
	sent, failed, retried atomic.Int64
}

func (f *fleet) traffic(clients int) *traffic {
	t := &traffic{stop: make(chan struct{})}
	bodies := []string{completion(hot), completion(cold), `{"model":"m","prompt":"p","stream":true}`}
	for client := range clients {
		t.clients.Go(func() {
			for i := client; ; i++ {
				select {
				case <-t.stop:
					return
				default:
				}
				t.one(f, client, bodies[i%len(bodies)])
			}
		})
	}
	return t
}

func (t *traffic) one(f *fleet, client int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	retries, err := f.persist(ctx, client, body)
	t.retried.Add(int64(retries))
	if err != nil {
		t.failed.Add(1)
		f.t.Logf("a request failed: %v", err)
	}
	t.sent.Add(1)
}

// testRestarts kills and restarts each part in turn under traffic.
func (f *fleet) testRestarts(t *testing.T) {
	traffic := f.traffic(4)
	revision := f.write(100, 8)
	for _, e := range f.epps {
		if e.kill() {
			t.Errorf("%s ended by itself", e.name)
		}
		e.start(t)
		f.ready(e)
		e.shows(float64(revision), time.Second, "selective_kv_revision")
	}
	for _, e := range f.engines {
		e.restart()
		for _, e := range f.epps {
			f.ready(e)
		}
	}
	f.spoil(t, revision)
	close(traffic.stop)
	traffic.clients.Wait()
	t.Logf("%d requests, %d retries, %d failed", traffic.sent.Load(), traffic.retried.Load(), traffic.failed.Load())
	if traffic.retried.Load() == 0 {
		t.Error("no request met a part that was away: nothing was tested")
	}
	if traffic.failed.Load() > 0 || traffic.sent.Load() == 0 {
		t.Errorf("%d of %d requests failed", traffic.failed.Load(), traffic.sent.Load())
	}
	for _, e := range f.epps {
		if limited(t, f.send(e, completions, completion(hot))) {
			t.Errorf("%s does not restore after it all", e.name)
		}
	}
}

// spoil breaks the parameter file, removes it, and puts it right: what was in
// force stays until then.
func (f *fleet) spoil(t *testing.T, revision int64) {
	good, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, []byte(`{"apiVersion":"kvtuner/v1alpha1","baseline":{`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.epps {
		eventually(t, e.name+" refuses a broken file", 5*time.Second, func() bool {
			s, err := e.scrape()
			return err == nil && s.sum("selective_kv_documents_refused_total", "reason=invalid") > 0
		})
		e.shows(float64(revision), time.Second, "selective_kv_revision")
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	next := f.write(100, 8)
	for _, e := range f.epps {
		e.shows(float64(next), time.Second, "selective_kv_revision")
	}
}
