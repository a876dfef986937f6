package fleet

import (
	"math"
	"math/rand/v2"
)

// Purposes separate the random streams of one seed: what a client asks for
// never depends on how it was served.
const (
	forArrivals uint64 = iota + 1
	forPrefixes
	forService
	forHistory
	forReports
)

// mix spreads two words into one (the finalizer of splitmix64).
func mix(a, b uint64) uint64 {
	z := a ^ (b+0x9e3779b97f4a7c15)*0xbf58476d1ce4e5b9
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// random is a reseedable generator.
type random struct {
	pcg  rand.PCG
	rand *rand.Rand
}

func newRandom(seed, purpose uint64) *random {
	r := &random{}
	r.pcg.Seed(seed, purpose)
	r.rand = rand.New(&r.pcg)
	return r
}

// reseed starts the stream of one request.
func (r *random) reseed(seed, key uint64) { r.pcg.Seed(seed, key) }

func (r *random) float() float64        { return r.rand.Float64() }
func (r *random) chance(p float64) bool { return r.rand.Float64() < p }
func (r *random) exponential() float64  { return r.rand.ExpFloat64() }

// gamma draws from a gamma distribution of the given shape and mean 1
// (Marsaglia and Tsang, 2000; boosted for shapes below 1). Small shapes have
// heavy tails.
func (r *random) gamma(shape float64) float64 {
	scale := 1 / shape
	if shape < 1 {
		scale *= math.Pow(r.rand.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.rand.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.rand.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v * scale
		}
	}
}
