package fleet

import (
	"iter"
	"math"
	"slices"
)

// Ordering is a pair of policies in one cell of a report.
type Ordering struct {
	Report       string
	Fitted       bool
	PrefixTokens int
	Concurrency  int
	A, B         Setting
	// Published and Simulated are by how much A's throughput is above B's,
	// relative.
	Published, Simulated float64
	// Spread is the standard deviation of Simulated over the seeds, A and B on
	// the same seed; NaN with one seed.
	Spread float64
	// Tie tells that the published difference is too small to be one.
	Tie   bool
	Right bool
}

// Published differences under tieBand count as ties, which the model must show
// as less than tieMet.
const (
	tieBand = 0.015
	tieMet  = 0.03
)

// Orderings are the pairs of policies in each cell of each report, without
// those of two thresholds.
func (c Comparison) Orderings() []Ordering { return orderings(c.Runs) }

func orderings(runs []Run) []Ordering {
	var all []Ordering
	for a, b := range pairs(runs) {
		all = append(all, compareOrder(a, b))
	}
	return all
}

// pairs are each run and those before it that it is compared with. The work
// grows with the number of pairs, not with that of all runs squared: a report
// has one load and one recompute a cell.
func pairs(runs []Run) iter.Seq2[*Run, *Run] {
	type cell struct {
		report          string
		prefix, streams int
	}
	type earlier struct{ fixed, thresholds []*Run }
	return func(yield func(a, b *Run) bool) {
		cells := make(map[cell]*earlier)
		for i := range runs {
			b, p := &runs[i], &runs[i].Published
			at := cell{p.Report, p.PrefixTokens, p.Concurrency}
			if cells[at] == nil {
				cells[at] = &earlier{}
			}
			seen := cells[at]
			against, into := slices.Clone(seen.fixed), &seen.thresholds
			if p.Setting.Policy != "threshold" {
				against, into = append(against, seen.thresholds...), &seen.fixed
			}
			for _, a := range against {
				if !yield(a, b) {
					return
				}
			}
			*into = append(*into, b)
		}
	}
}

func compareOrder(a, b *Run) Ordering {
	o := Ordering{
		Report: a.Published.Report, Fitted: a.Fitted,
		PrefixTokens: a.Published.PrefixTokens, Concurrency: a.Published.Concurrency,
		A: a.Published.Setting, B: b.Published.Setting,
		Published: a.Published.RequestsPerSecond/b.Published.RequestsPerSecond - 1,
		Simulated: a.Simulated.RequestsPerSecond/b.Simulated.RequestsPerSecond - 1,
	}
	var differences []float64
	for i := range a.BySeed {
		differences = append(differences, a.BySeed[i].RequestsPerSecond/b.BySeed[i].RequestsPerSecond-1)
	}
	o.Spread = deviation(differences)
	o.Tie = math.Abs(o.Published) < tieBand
	if o.Tie {
		o.Right = math.Abs(o.Simulated) < tieMet
	} else {
		o.Right = o.Published*o.Simulated > 0
	}
	return o
}

// deviation is the sample standard deviation; NaN of fewer than two values.
func deviation(values []float64) float64 {
	n := float64(len(values))
	if n < 2 {
		return math.NaN()
	}
	mean, squares := sum(values)/n, 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / (n - 1))
}

// Spread is the standard deviation of a quantity over the run's seeds, relative
// to its mean; NaN with one seed.
func (r Run) Spread(quantity func(Stats) float64) float64 {
	var values []float64
	for _, s := range r.BySeed {
		values = append(values, quantity(s))
	}
	return deviation(values) / (sum(values) / float64(len(values)))
}
