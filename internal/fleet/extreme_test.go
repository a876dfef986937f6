package fleet

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// Whatever a profile may hold within its ranges, a run neither crashes nor hangs
// nor loses its numbers.
func TestProfilesAtTheEndsOfTheirRanges(t *testing.T) {
	m := []Measurement{
		{Report: "r", PrefixTokens: 4096, Concurrency: 8, Setting: loading, RequestsPerSecond: 1},
		{Report: "r", PrefixTokens: 4096, Concurrency: 8, Setting: threshold, RequestsPerSecond: 1},
	}
	corpus := &Workload{NewTokens: 64, OutputTokens: 8, CorpusTokens: 1 << 18}
	small := Published() // more blocks in the CPU tier than can be counted
	small.CPUCacheGiB, small.CPURetained, small.KVKiBToken, small.BlockTokens = 1e5, 1, 1, 1
	for _, d := range Parameters() {
		for _, v := range []float64{d.Min, d.Max, d.Value(small)} {
			p := Published()
			if v == d.Value(small) {
				p = small
			}
			d.Set(&p, v)
			o := CompareOptions{Profile: p, Measurements: m, Base: corpus, Seeds: []uint64{1}, Duration: 2 * time.Second}
			if o.Validate() != nil {
				continue // such as a cache smaller than a request
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			c, err := Compare(ctx, o)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s of %v: hangs", d.Name, v)
				continue
			}
			if err != nil {
				t.Fatalf("%s of %v: %v", d.Name, v, err)
			}
			if loss := c.Loss(); math.IsNaN(loss) || math.IsInf(loss, 0) {
				t.Errorf("%s of %v: loss %v", d.Name, v, loss)
			}
		}
	}
}
