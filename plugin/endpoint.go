package plugin

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxEndpoints bounds the state kept and the series exported. Endpoints
	// beyond it are served without a gate.
	maxEndpoints = 16384
	// idleAfter is how long an endpoint is kept without a sample, for EPPs that
	// do not tell when one is gone.
	idleAfter = 10 * time.Minute
)

// endpoint is what is known of one engine. What a decision reads comes first, to
// lie on one cache line: with thousands of engines, fetching it is much of the cost
// of a decision.
type endpoint struct {
	drawn    atomic.Uint64 // draws<<1 | arm of the last draw
	batch    batch
	gate     gate
	restores *restores // nil if requests are never weighed by their cost
	closings atomic.Uint64
	openings atomic.Uint64
}

func newEndpoint(weighs bool) *endpoint {
	e := &endpoint{}
	e.gate.at.Store(never)
	e.batch.at.Store(never)
	if weighs {
		e.restores = &restores{}
	}
	return e
}

// arm is the arm drawn for the endpoint by a document, drawn once a snapshot.
func (e *endpoint) arm(s *snapshot, name string) int {
	tag := s.draws << 1
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

// endpoints finds an endpoint by name without a lock.
type endpoints struct {
	byName sync.Map // string to *endpoint

	mu    sync.Mutex // of what follows, and of every write to byName
	count int
	swept int64 // when the idle ones were last dropped
}

func (es *endpoints) get(name string) *endpoint {
	e, _ := es.byName.Load(name)
	found, _ := e.(*endpoint)
	return found
}

// add returns the endpoint called name, made by create if it is not there; nil
// if there is no room. Now and then it drops those that are idle.
func (es *endpoints) add(name string, now int64, create func() *endpoint) *endpoint {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e := es.get(name); e != nil {
		return e
	}
	if now-es.swept > int64(idleAfter) {
		es.sweep(now)
	}
	if es.count >= maxEndpoints {
		return nil
	}
	e := create()
	es.byName.Store(name, e)
	es.count++
	return e
}

func (es *endpoints) sweep(now int64) {
	es.swept = now
	for name, e := range es.byName.Range {
		if e.(*endpoint).idle(now) {
			es.byName.Delete(name)
			es.count--
		}
	}
}

func (es *endpoints) remove(name string) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if _, found := es.byName.LoadAndDelete(name); found {
		es.count--
	}
}

// each calls do with every endpoint that has a sample and is not idle.
func (es *endpoints) each(now int64, do func(name string, e *endpoint)) {
	for name, e := range es.byName.Range {
		if e := e.(*endpoint); e.gate.at.Load() != never && !e.idle(now) {
			do(name.(string), e)
		}
	}
}
