package bench

import (
	"errors"
	"math"

	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

// The grid of fixed pairs searched in hindsight, as fine as differences can be
// told apart: between neighbours they are mostly below the noise of a run.
var (
	gridTokens  = []store.Tokens{1, 256, 512, 1024, 2048, 4096, 8192}
	gridWaiting = []int{1, 2, 4, 8, 16, store.NoGate}
)

// grid lists the fixed pairs for a track: every token minimum that its longest
// prefix can reach with every queue limit, and never restoring, for which the
// queue limit means nothing.
func grid(phases []lab.Phase) []lab.Policy {
	longest := 0
	for _, p := range phases {
		longest = max(longest, p.Scenario.Workload.LongestPrefix())
	}
	var all []lab.Policy
	for _, tokens := range gridTokens {
		if int(tokens) > longest {
			break
		}
		for _, waiting := range gridWaiting {
			all = append(all, lab.Static(store.Params{MinExternalReusableTokens: tokens, MaxWaitingRequests: waiting}))
		}
	}
	return append(all, lab.Static(store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: store.NoGate}))
}

// errNothing means that a track is too short to compare anything.
var errNothing = errors.New("no request was completed, so no fixed pair is best; run for longer")

// best returns the index of the candidate with the lowest mean over the seeds of
// the mean end-to-end time, the first of equals. The mean over seeds keeps the
// reference from being the luck of one seed. Candidates with a seed without
// completed requests are passed over.
func best(candidates [][]stretch) (int, error) {
	at, lowest := -1, math.Inf(1)
	for i, seeds := range candidates {
		sum := 0.0
		for _, s := range seeds {
			sum += s.stats.E2EMean
		}
		if mean := sum / float64(len(seeds)); mean < lowest {
			at, lowest = i, mean
		}
	}
	if at < 0 {
		return 0, errNothing
	}
	return at, nil
}

// sweep holds the runs of a track's grid: one list of outcomes, by seed, for
// each pair.
type sweep struct {
	pairs []lab.Policy
	runs  [][]outcome
}

func (m *matrix) sweep(track int) sweep {
	s := sweep{pairs: grid(m.plan.tracks[track].phases)}
	for _, p := range s.pairs {
		s.runs = append(s.runs, m.of(track, p))
	}
	return s
}

// bestStatic is the pair that is best over the whole track.
func (s sweep) bestStatic() ([]outcome, error) {
	i, err := best(s.pick(func(o outcome) stretch { return o.whole }))
	if err != nil {
		return nil, err
	}
	var out []outcome
	for _, o := range s.runs[i] {
		named := outcome{whole: s.name(i, o.whole)}
		for _, p := range o.phases {
			named.phases = append(named.phases, s.name(i, p))
		}
		out = append(out, named)
	}
	return out, nil
}

// oracle joins each phase of the pair that is best in it. Each pair ran the
// whole schedule, so what a phase inherits from the one before is that of the
// same pair.
func (s sweep) oracle() ([]outcome, error) {
	out := make([]outcome, len(s.runs[0]))
	for phase := range s.runs[0][0].phases {
		i, err := best(s.pick(func(o outcome) stretch { return o.phases[phase] }))
		if err != nil {
			return nil, err
		}
		for seed, o := range s.runs[i] {
			out[seed].phases = append(out[seed].phases, s.name(i, o.phases[phase]))
		}
	}
	for seed := range out {
		out[seed].whole = join(out[seed].phases)
	}
	return out, nil
}

func (s sweep) pick(part func(outcome) stretch) [][]stretch {
	all := make([][]stretch, len(s.runs))
	for i, seeds := range s.runs {
		for _, o := range seeds {
			all[i] = append(all[i], part(o))
		}
	}
	return all
}

func (s sweep) name(pair int, of stretch) stretch {
	of.pair = pairName(s.pairs[pair])
	return of
}
