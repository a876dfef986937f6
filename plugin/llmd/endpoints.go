package llmd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	"k8s.io/apimachinery/pkg/types"
)

// maxIdle is how long an endpoint is kept that nothing is heard of. The policy
// forgets it by itself after as long.
const maxIdle = 10 * time.Minute

// endpoint is what the adapter keeps of one engine.
type endpoint struct {
	// name is the policy's name for it.
	name string
	// used is when it was last heard of, in Unix nanoseconds.
	used atomic.Int64
	// gone says that it was removed. A scrape that was under way then must not
	// bring it back.
	gone atomic.Bool

	mu    sync.Mutex
	still stillness
}

func (e *endpoint) stuck(waiting, running int, at time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.still.stuck(waiting, running, at)
}

// endpoints are all of them, by namespace and name.
type endpoints struct {
	all sync.Map // types.NamespacedName to *endpoint
}

// use returns the endpoint, a new one if need be.
func (es *endpoints) use(name types.NamespacedName, now time.Time) *endpoint {
	known, found := es.all.Load(name)
	if !found {
		known, _ = es.all.LoadOrStore(name, &endpoint{name: name.String()})
	}
	e := known.(*endpoint)
	e.used.Store(now.UnixNano())
	return e
}

// name is the policy's name for an endpoint.
func (es *endpoints) name(metadata *datalayer.EndpointMetadata) string {
	if known, found := es.all.Load(metadata.ID); found {
		return known.(*endpoint).name
	}
	return metadata.ID.String()
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

// Extract frees what is kept of an endpoint that was removed.
func (p *Plugin) Extract(_ context.Context, event datalayer.EndpointEvent) error {
	if event.Endpoint == nil || event.Endpoint.GetMetadata() == nil {
		return nil
	}
	e := p.endpoints.use(event.Endpoint.GetMetadata().ID, p.now())
	e.gone.Store(event.Type == datalayer.EventDelete)
	if event.Type == datalayer.EventDelete {
		p.policy.Forget(e.name)
	}
	return nil
}
