package adapter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
)

const (
	// maxInFlight bounds the requests remembered, well above what one EPP
	// replica routes at a time.
	maxInFlight = 1 << 16
	// maxDuration is how long a request is remembered. Frameworks report the end
	// of every request, broken ones included; this is for the case that one does
	// not.
	maxDuration = time.Hour
)

// decided is a request between its decision and the end of its response. But
// for the fields that never change, it belongs to the hooks of that request,
// which a framework calls one after another.
type decided struct {
	decision plugin.Decision
	at       time.Time
	streamed bool
	// edited says that the body changed.
	edited bool
	// answered says that a good response has begun, began that its first
	// token came.
	answered, began bool
}

// inFlight remembers requests by their key.
type inFlight struct {
	requests sync.Map // any to *decided
	n        atomic.Int64
}

// add says whether there was room.
func (f *inFlight) add(key any, d *decided) bool {
	if f.n.Add(1) > maxInFlight {
		f.n.Add(-1)
		return false
	}
	if _, replaced := f.requests.Swap(key, d); replaced {
		f.n.Add(-1)
	}
	return true
}

// get returns nil for a request that is not remembered.
func (f *inFlight) get(key any) *decided {
	d, _ := f.requests.Load(key)
	found, _ := d.(*decided)
	return found
}

func (f *inFlight) remove(key any) bool {
	_, found := f.requests.LoadAndDelete(key)
	if found {
		f.n.Add(-1)
	}
	return found
}

// expire forgets what is too old and says how many that were.
func (f *inFlight) expire(now time.Time) (expired int) {
	f.requests.Range(func(key, value any) bool {
		if now.Sub(value.(*decided).at) > maxDuration && f.remove(key) {
			expired++
		}
		return true
	})
	return expired
}
