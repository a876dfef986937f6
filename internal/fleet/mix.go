package fleet

import "math"

// HeavyTail discretises a distribution of prefix lengths: classes of equal
// weight at the middles of equal shares of probability, rounded to blocks.
type HeavyTail struct {
	// Quantile of the length in tokens at a probability between 0 and 1.
	Quantile func(p float64) float64
	// Classes is how many lengths are wanted; equal ones become one class.
	Classes int
	// Prefixes is how many different prefixes a class has before that.
	Prefixes int
	// Block is the block size, Longest the most tokens a prefix may have.
	Block, Longest int
}

// Lognormal is the quantile function of lengths whose logarithm is normal with
// standard deviation sigma.
func Lognormal(median, sigma float64) func(float64) float64 {
	return func(p float64) float64 { return median * math.Exp(sigma*math.Sqrt2*math.Erfinv(2*p-1)) }
}

// Pareto is the quantile function of lengths from shortest on whose tail falls
// with the power alpha: the mean is infinite from 1 down.
func Pareto(shortest, alpha float64) func(float64) float64 {
	return func(p float64) float64 { return shortest * math.Pow(1-p, -1/alpha) }
}

// Mix are the classes, shortest first.
func (h HeavyTail) Mix() []PrefixClass {
	var all []PrefixClass
	longest := h.Longest / h.Block
	for i := range h.Classes {
		tokens := h.Quantile((float64(i) + 0.5) / float64(h.Classes))
		blocks := int(math.Round(math.Min(math.Max(tokens/float64(h.Block), 1), float64(longest))))
		if n := len(all); n > 0 && all[n-1].Tokens == blocks*h.Block {
			all[n-1].Weight++
			all[n-1].Count += h.Prefixes
			continue
		}
		all = append(all, PrefixClass{Tokens: blocks * h.Block, Weight: 1, Count: h.Prefixes})
	}
	return all
}
