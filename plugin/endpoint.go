package plugin

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxEndpoints bounds the state kept and the series exported. Endpoints
	// beyond it are served without a gate.
	maxEndpoints = 8192
	// idleAfter is how long an endpoint is kept without a sample, for EPPs that
	// do not tell when one is gone.
	idleAfter = 10 * time.Minute
)

// endpoint is what is known of one engine.
type endpoint struct {
	gate     gate
	drawn    atomic.Uint64 // revision<<1 | arm of the last draw
	shard    *shard
	closings atomic.Uint64
	openings atomic.Uint64
}

func newEndpoint(s *shard) *endpoint {
	e := &endpoint{shard: s}
	e.gate.at.Store(never)
	return e
}

// arm is the arm drawn for the endpoint by a document, drawn once a revision.
func (e *endpoint) arm(s *snapshot, name string) int {
	tag := uint64(s.revision) << 1
	if drawn := e.drawn.Load(); drawn>>1 == tag>>1 {
		return int(drawn & 1)
	}
	arm := s.draw(name)
	e.drawn.Store(tag | uint64(arm))
	return arm
}

func (e *endpoint) observe(d decay, now, at int64, waiting float64, limit int) {
	before, after := e.gate.observe(d, now, at, waiting, limit)
	switch {
	case !before && after:
		e.closings.Add(1)
	case before && !after:
		e.openings.Add(1)
	}
}

// idle says that no sample came for so long that the endpoint is taken for
// gone.
func (e *endpoint) idle(now int64) bool {
	at := e.gate.at.Load()
	return at != never && now-at > int64(idleAfter)
}

// endpoints is read without a lock; the map is copied when one comes or goes.
type endpoints struct {
	mu sync.Mutex
	m  atomic.Pointer[map[string]*endpoint]
}

func (es *endpoints) all() map[string]*endpoint {
	if m := es.m.Load(); m != nil {
		return *m
	}
	return nil
}

func (es *endpoints) get(name string) *endpoint { return es.all()[name] }

// add returns the endpoint called name, made by create if it is not there; nil
// if there is no room. It drops those that are idle.
func (es *endpoints) add(name string, now int64, create func() *endpoint) *endpoint {
	es.mu.Lock()
	defer es.mu.Unlock()
	old := es.all()
	if e := old[name]; e != nil {
		return e
	}
	m := make(map[string]*endpoint, len(old)+1)
	for n, e := range old {
		if !e.idle(now) {
			m[n] = e
		}
	}
	if len(m) >= maxEndpoints {
		return nil
	}
	e := create()
	m[name] = e
	es.m.Store(&m)
	return e
}

func (es *endpoints) remove(name string) {
	es.mu.Lock()
	defer es.mu.Unlock()
	old := es.all()
	if old[name] == nil {
		return
	}
	m := maps.Clone(old)
	delete(m, name)
	es.m.Store(&m)
}
