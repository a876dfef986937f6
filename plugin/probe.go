package plugin

import "math"

// Constants of 64-bit FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// draw maps a request's ID to a number spread evenly over 64 bits: 64-bit FNV-1a
// finished with the 64-bit finalizer of MurmurHash3. The same request is drawn
// the same way on every EPP replica.
func draw(id string) uint64 {
	h := uint64(fnvOffset)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * fnvPrime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// drawBelow is the number below which a share of all draws falls.
func drawBelow(share float64) uint64 {
	return uint64(math.Ldexp(share, 64))
}
