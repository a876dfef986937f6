package tuner

import (
	"math"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// signature describes a workload by what decides its best parameters: logs of
// prompt tokens a request, of requests in flight an engine, of the seconds a
// restored and a computed token cost.
type signature [4]float64

// signatureRadius is the distance within which two workloads are the same: a
// factor of about 1.4 in one of the coordinates.
const signatureRadius = 0.35

func signatureOf(s Signals, c *curves) (signature, bool) {
	if s.Requests <= 0 || s.Prompt <= 0 || s.Engines == 0 || s.InFlight() <= 0 || c == nil {
		return signature{}, false
	}
	restore, tokens := 0.0, 0.0
	for _, b := range c.buckets {
		if b.known {
			restore += b.requests * b.restore
			tokens += b.requests * b.tokens
		}
	}
	if restore <= 0 || tokens <= 0 {
		return signature{}, false
	}
	sig := signature{
		math.Log(s.Prompt / s.Requests), math.Log(s.InFlight() / float64(s.Engines)),
		math.Log(restore / tokens), math.Log(c.slope),
	}
	for _, x := range sig {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return signature{}, false
		}
	}
	return sig, true
}

func (s signature) distance(o signature) float64 {
	sum := 0.0
	for i := range s {
		sum += (s[i] - o[i]) * (s[i] - o[i])
	}
	return math.Sqrt(sum)
}

// remembered is the best known setting of a workload.
type remembered struct {
	Signature signature    `json:"signature"`
	Params    store.Params `json:"params"`
	At        time.Time    `json:"at"`
}

// maxRemembered bounds the memory; the oldest goes first.
const maxRemembered = 32

type memory []remembered

func (m memory) recall(s signature) *store.Params {
	best, at := -1, signatureRadius
	for i, r := range m {
		if d := r.Signature.distance(s); d < at {
			best, at = i, d
		}
	}
	if best < 0 {
		return nil
	}
	p := m[best].Params
	return &p
}

// forget drops every workload whose best was p.
func (m memory) forget(p store.Params) memory {
	return slices.DeleteFunc(slices.Clone(m), func(r remembered) bool { return r.Params == p })
}

// remember replaces what was known of that workload.
func (m memory) remember(s signature, p store.Params, now time.Time) memory {
	out := m[:0:0]
	for _, r := range m {
		if r.Signature.distance(s) >= signatureRadius {
			out = append(out, r)
		}
	}
	out = append(out, remembered{Signature: s, Params: p, At: now})
	return out[max(0, len(out)-maxRemembered):]
}
