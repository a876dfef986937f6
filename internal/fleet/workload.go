package fleet

import (
	"errors"
	"fmt"
	"time"
)

// Workload is what the clients ask for: requests whose prefixes come from a
// shared corpus, conversations (Chat), or the requests of a Trace.
type Workload struct {
	// Prefixes is the mix of prefix lengths; each request draws one.
	Prefixes []PrefixClass
	// CorpusTokens is the size of the corpus the prefixes are cut from, shared
	// equally by the classes: a class without a Count of its own holds
	// CorpusTokens/classes/Tokens different prefixes. The published runs do not
	// state it; their GPU hit shares at all four lengths agree on 2^21.
	CorpusTokens int
	// Zipf is the exponent of popularity within a class: the k-th prefix is
	// asked for in proportion to 1/k^Zipf. 0: all equally often.
	Zipf float64
	// NewTokens is the number of prompt tokens after the prefix, never shared.
	NewTokens int
	// OutputTokens is the number of tokens generated.
	OutputTokens int
	// Streams is the number of closed-loop clients: each issues its next
	// request when it has the last token of the previous one. 0: open loop.
	Streams int
	// Think is the mean of a closed-loop client's exponential pause before each
	// request, also before its first.
	Think time.Duration
	// Arrivals drive the open loop.
	Arrivals Arrivals
	// Chat makes every stream a series of conversations; it excludes Prefixes.
	Chat *Chat
	// Trace is replayed; it excludes everything else.
	Trace *Trace
}

// PrefixClass is one prefix length of a mix.
type PrefixClass struct {
	// Tokens in the prefix; a positive multiple of the block size.
	Tokens int
	// Weight of the class in the mix, relative to the others.
	Weight float64
	// Count of different prefixes; 0: as CorpusTokens says.
	Count int
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

// Poisson are arrivals at a constant rate of requests per second.
func Poisson(rate float64) Arrivals { return Arrivals{OnRate: rate, On: time.Hour} }

// Validate reports what is impossible about the workload.
func (w Workload) Validate() error {
	if w.Trace != nil {
		return w.validateTrace()
	}
	errs := []error{w.validatePrefixes()}
	if w.NewTokens <= 0 {
		errs = append(errs, fmt.Errorf("new tokens: %d must be positive", w.NewTokens))
	}
	if w.OutputTokens <= 0 {
		errs = append(errs, fmt.Errorf("output tokens: %d must be positive", w.OutputTokens))
	}
	if w.Streams < 0 {
		errs = append(errs, fmt.Errorf("streams: %d must not be negative", w.Streams))
	}
	if w.Think < 0 {
		errs = append(errs, fmt.Errorf("think time: %v must not be negative", w.Think))
	}
	if w.Streams == 0 {
		errs = append(errs, w.Arrivals.validate())
	}
	return errors.Join(errs...)
}

func (w Workload) validatePrefixes() error {
	if w.Chat != nil {
		return w.validateChat()
	}
	var errs []error
	if len(w.Prefixes) == 0 {
		errs = append(errs, errors.New("prefixes: at least one class is needed"))
	}
	for _, c := range w.Prefixes {
		if c.Tokens <= 0 || !(c.Weight > 0) {
			errs = append(errs, fmt.Errorf("prefix class of %d tokens, weight %v: both must be positive", c.Tokens, c.Weight))
		} else if n := w.classSize(c); n < 1 || n > maxPrefixes {
			errs = append(errs, fmt.Errorf("corpus of %d tokens: too small for a prefix of %d, or more than %d prefixes", w.CorpusTokens, c.Tokens, maxPrefixes))
		}
	}
	if !(w.Zipf >= 0 && w.Zipf <= maxZipf) {
		errs = append(errs, fmt.Errorf("zipf: %v must be between 0 and %v", w.Zipf, maxZipf))
	}
	return errors.Join(errs...)
}

// Bounds that keep tables small.
const (
	maxPrefixes = 1 << 22
	maxZipf     = 10.0
	// maxPrefixNodes are prefixes times engines, of about 100 bytes each.
	maxPrefixNodes = 1 << 24
)

// prefixes is how many there are.
func (w Workload) prefixes() int {
	switch {
	case w.Trace != nil:
		return w.Trace.prefixes()
	case w.Chat != nil:
		return w.Streams
	}
	n := 0
	for _, c := range w.Prefixes {
		n += w.classSize(c)
	}
	return n
}

// classSize is the number of different prefixes of a class.
func (w Workload) classSize(c PrefixClass) int {
	if c.Count != 0 {
		return c.Count
	}
	return w.CorpusTokens / len(w.Prefixes) / c.Tokens
}

// LongestPrefix is the most tokens a request may share with others.
func (w Workload) LongestPrefix() int {
	longest := 0
	switch {
	case w.Trace != nil:
		for _, q := range w.Trace.Requests {
			longest = max(longest, q.PrefixTokens)
		}
	case w.Chat != nil:
		longest = w.Chat.MaxTokens
	}
	for _, c := range w.Prefixes {
		longest = max(longest, c.Tokens)
	}
	return longest
}

// longestRequest is the most tokens of context a request may need.
func (w Workload) longestRequest() int {
	if w.Trace != nil {
		return w.Trace.longest()
	}
	if w.Chat != nil {
		return w.Chat.MaxTokens
	}
	return w.LongestPrefix() + w.NewTokens + w.OutputTokens
}
