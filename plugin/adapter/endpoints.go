package adapter

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxIdle is how long an endpoint is kept that nothing is heard of. The policy
// forgets it by itself after as long.
const maxIdle = 10 * time.Minute

// EndpointID names an endpoint.
type EndpointID struct{ Namespace, Name string }

// String is the policy's name for it, and the value of the label "endpoint".
func (id EndpointID) String() string { return id.Namespace + "/" + id.Name }

// endpoint is what the adapter keeps of one engine.
type endpoint struct {
	// name is the policy's name for it.
	name string
	// used is when it was last heard of, in Unix nanoseconds.
	used atomic.Int64

	mu    sync.Mutex
	still stillness
	// gone says that it was removed. A scrape that was under way then must not
	// bring it back.
	gone bool
}

func (e *endpoint) stuck(l Load) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.still.stuck(l)
}

// endpoints are all of them.
type endpoints struct {
	all sync.Map // EndpointID to *endpoint
}

// use returns the endpoint, a new one if need be.
func (es *endpoints) use(id EndpointID, now time.Time) *endpoint {
	known, found := es.all.Load(id)
	if !found {
		known, _ = es.all.LoadOrStore(id, &endpoint{name: id.String()})
	}
	e := known.(*endpoint)
	e.used.Store(now.UnixNano())
	return e
}

// name is the policy's name for an endpoint.
func (es *endpoints) name(id EndpointID) string {
	if known, found := es.all.Load(id); found {
		return known.(*endpoint).name
	}
	return id.String()
}

func (es *endpoints) sweep(now time.Time) {
	oldest := now.Add(-maxIdle).UnixNano()
	es.all.Range(func(key, value any) bool {
		if value.(*endpoint).used.Load() < oldest {
			es.all.Delete(key)
		}
		return true
	})
}

// Added says that an endpoint is there, or there again.
func (a *Adapter) Added(id EndpointID) {
	e := a.endpoints.use(id, a.now())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = false
}

// Removed frees what is kept of an endpoint. What is still under way there does
// not bring it back.
func (a *Adapter) Removed(id EndpointID) {
	e := a.endpoints.use(id, a.now())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	a.policy.Forget(e.name)
}
