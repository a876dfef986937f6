package fleet

import (
	"errors"
	"fmt"
	"time"
)

// Workload is what the clients ask for.
type Workload struct {
	// Prefixes is the mix of prefix lengths; each request draws one.
	Prefixes []PrefixClass
	// CorpusTokens is the size of the corpus the prefixes are cut from, shared
	// equally by the classes: a class holds CorpusTokens/classes/Tokens
	// different prefixes, all equally popular. The published runs do not state
	// it; their GPU hit shares at all four lengths agree on 2^21.
	CorpusTokens int
	// NewTokens is the number of prompt tokens after the prefix, never shared.
	NewTokens int
	// OutputTokens is the number of tokens generated.
	OutputTokens int
	// Streams is the number of closed-loop clients: each issues its next
	// request when it has the last token of the previous one. 0: open loop.
	Streams int
	// Arrivals drive the open loop.
	Arrivals Arrivals
}

// PrefixClass is one prefix length of a mix.
type PrefixClass struct {
	// Tokens in the prefix; a positive multiple of the block size.
	Tokens int
	// Weight of the class in the mix, relative to the others.
	Weight float64
}

// Arrivals is a Poisson process that alternates between two rates.
type Arrivals struct {
	// OnRate and OffRate are requests per second.
	OnRate, OffRate float64
	// On and Off are the lengths of the two phases; On comes first.
	On, Off time.Duration
}

// rate is the arrival rate at a moment of the cycle.
func (a Arrivals) rate(t instant) float64 {
	if instant(int64(t)%int64(a.On+a.Off)) < instant(a.On) {
		return a.OnRate
	}
	return a.OffRate
}

func (a Arrivals) validate() error {
	switch {
	case a.OnRate <= 0:
		return fmt.Errorf("arrivals: on rate %v must be positive", a.OnRate)
	case a.OffRate < 0 || a.OffRate > a.OnRate:
		return fmt.Errorf("arrivals: off rate %v must be between 0 and the on rate %v", a.OffRate, a.OnRate)
	case a.On <= 0 || a.Off < 0:
		return fmt.Errorf("arrivals: on phase %v must be positive, off phase %v not negative", a.On, a.Off)
	}
	return nil
}

// Validate reports what is impossible about the workload.
func (w Workload) Validate() error {
	var errs []error
	if len(w.Prefixes) == 0 {
		errs = append(errs, errors.New("prefixes: at least one class is needed"))
	}
	for _, c := range w.Prefixes {
		if c.Tokens <= 0 || !(c.Weight > 0) {
			errs = append(errs, fmt.Errorf("prefix class of %d tokens, weight %v: both must be positive", c.Tokens, c.Weight))
		} else if w.classSize(c) < 1 {
			errs = append(errs, fmt.Errorf("corpus of %d tokens: too small for a prefix of %d", w.CorpusTokens, c.Tokens))
		}
	}
	if w.NewTokens <= 0 {
		errs = append(errs, fmt.Errorf("new tokens: %d must be positive", w.NewTokens))
	}
	if w.OutputTokens <= 0 {
		errs = append(errs, fmt.Errorf("output tokens: %d must be positive", w.OutputTokens))
	}
	if w.Streams < 0 {
		errs = append(errs, fmt.Errorf("streams: %d must not be negative", w.Streams))
	}
	if w.Streams == 0 {
		errs = append(errs, w.Arrivals.validate())
	}
	return errors.Join(errs...)
}

// classSize is the number of different prefixes of a class.
func (w Workload) classSize(c PrefixClass) int {
	return w.CorpusTokens / len(w.Prefixes) / c.Tokens
}
