package fleet

import "math"

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
	for i, b := range runs {
		for _, a := range runs[:i] {
			if a.comparable(b) {
				all = append(all, compareOrder(a, b))
			}
		}
	}
	return all
}

func (r Run) comparable(b Run) bool {
	p, q := r.Published, b.Published
	return p.Report == q.Report && p.PrefixTokens == q.PrefixTokens && p.Concurrency == q.Concurrency &&
		(p.Setting.Policy != "threshold" || q.Setting.Policy != "threshold")
}

func compareOrder(a, b Run) Ordering {
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
