package plugin

import (
	"math"
	"math/bits"
	"strconv"
	"sync/atomic"
)

// Cost buckets part requests by reusable tokens: below 64, then from each power
// of two up to the next, and 65536 or more. The lower end is inclusive, as the
// token minimum is.
const (
	firstCostBit = 6  // 64
	lastCostBit  = 16 // 65536
	costBuckets  = lastCostBit - firstCostBit + 2
)

func costBucket(tokens int) int {
	return min(max(bits.Len64(uint64(tokens))-firstCostBit, 0), costBuckets-1)
}

// costLabels are the values of the label "reusable": "0", "64", ..., "65536+".
var costLabels = func() (labels [costBuckets]string) {
	labels[0] = "0"
	for i := 1; i < costBuckets; i++ {
		labels[i] = strconv.Itoa(1 << (firstCostBit + i - 1))
	}
	labels[costBuckets-1] += "+"
	return labels
}()

// computedLabels are the values of the label "computed": those of "reusable", and
// "unknown".
var computedLabels = append(append([]string{}, costLabels[:]...), "unknown")

// The native histogram of reusable tokens has four buckets a doubling, from 1 to
// 2^30 tokens; what is above counts as 2^30.
const (
	tokenSchema  = 2
	tokenSteps   = 1 << tokenSchema
	tokenBits    = 30
	tokenBuckets = tokenBits*tokenSteps + 1
)

// classicBounds are the upper ends of the classic buckets.
var classicBounds = func() []int {
	bounds := []int{0}
	for bit := firstCostBit; bit <= lastCostBit+1; bit++ {
		bounds = append(bounds, 1<<bit)
	}
	return bounds
}()

// tokenCounts counts requests by reusable tokens, without a lock.
type tokenCounts struct {
	zero    atomic.Uint64
	buckets [tokenBuckets]atomic.Uint64
	sum     atomic.Uint64
}

func (c *tokenCounts) add(tokens int) {
	if tokens == 0 {
		c.zero.Add(1)
		return
	}
	tokens = min(tokens, 1<<tokenBits)
	c.buckets[tokenBucket(tokens)].Add(1)
	c.sum.Add(uint64(tokens))
}

// tokenEnds are the upper ends of the buckets within a doubling, as fractions of
// it, in 64-bit fixed point.
var tokenEnds = func() (ends [tokenSteps - 1]uint64) {
	for i := range ends {
		ends[i] = uint64(math.Ldexp(math.Exp2(float64(i+1)/tokenSteps-1), 64))
	}
	return ends
}()

// tokenBucket is the index i of the bucket (2^((i-1)/4), 2^(i/4)] that holds
// tokens, from 1 to 2^30.
func tokenBucket(tokens int) int {
	octave := bits.Len64(uint64(tokens - 1)) // tokens is in (2^(octave-1), 2^octave]
	if tokens == 1<<octave {
		return octave * tokenSteps
	}
	i := (octave-1)*tokenSteps + 1
	for fraction := uint64(tokens) << (64 - octave); i%tokenSteps != 0 && fraction > tokenEnds[i%tokenSteps-1]; {
		i++
	}
	return i
}
