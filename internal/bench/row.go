package bench

import (
	"math"
	"strconv"
)

// Number is a float64 that is null in JSON where it was not measured (NaN), and
// has six significant digits.
type Number float64

// MarshalJSON writes null for NaN and infinities.
func (n Number) MarshalJSON() ([]byte, error) {
	if s := n.String(); s != "" {
		return []byte(s), nil
	}
	return []byte("null"), nil
}

// String is the number as in JSON and CSV, empty for NaN and infinities.
func (n Number) String() string {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return ""
	}
	return strconv.FormatFloat(float64(n), 'g', 6, 64)
}

// Place is what a row is about: a scenario, a phase of a schedule (with its
// scenario), or, without Phase, a whole schedule.
type Place struct {
	Scenario string `json:"scenario,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Phase counts from 1.
	Phase int `json:"phase,omitempty"`
}

// Row is one policy with one seed at one place. Times are in seconds.
type Row struct {
	Place
	Policy string `json:"policy"`
	// Pair of thresholds of a policy found in hindsight; none for the whole
	// schedule of the oracle.
	Pair     string `json:"pair,omitempty"`
	Seed     uint64 `json:"seed"`
	Duration Number `json:"duration_s"`

	Requests            int    `json:"requests"`
	RequestsPerS        Number `json:"requests_per_s"`
	OutputTokensPerS    Number `json:"output_tokens_per_s"`
	TTFTMean            Number `json:"ttft_mean_s"`
	TTFTP50             Number `json:"ttft_p50_s"`
	TTFTP99             Number `json:"ttft_p99_s"`
	ITLMean             Number `json:"itl_mean_s"`
	E2EMean             Number `json:"e2e_mean_s"`
	WaitingMean         Number `json:"waiting_mean"`
	ExternalPromptShare Number `json:"external_prompt_share"`
	// Efficiency is the mean end-to-end time of the oracle, or without it of
	// best-static, divided by this row's; nil without either.
	Efficiency *Number `json:"efficiency,omitempty"`

	// Moves the tuner made, trials it started, and trials it aborted.
	Moves   int `json:"moves"`
	Trials  int `json:"trials"`
	Aborted int `json:"aborted"`
}

func newRow(at Place, policy string, seed uint64, s stretch, reference *stretch) Row {
	r := Row{
		Place: at, Policy: policy, Pair: s.pair, Seed: seed,
		Duration: Number(s.stats.Duration.Seconds()), Requests: s.stats.Requests,
		RequestsPerS: Number(s.stats.RequestsPerSecond), OutputTokensPerS: Number(s.stats.OutputTokensPerSecond),
		TTFTMean: Number(s.stats.TTFTMean), TTFTP50: Number(s.stats.TTFTP50), TTFTP99: Number(s.stats.TTFTP99),
		ITLMean: Number(s.stats.ITLMean), E2EMean: Number(s.stats.E2EMean), WaitingMean: Number(s.stats.WaitingMean),
		ExternalPromptShare: Number(s.stats.ExternalPromptShare),
		Moves:               s.activity.Moves, Trials: s.activity.Trials, Aborted: s.activity.Aborted,
	}
	if reference != nil {
		e := Number(reference.stats.E2EMean / s.stats.E2EMean)
		r.Efficiency = &e
	}
	return r
}

// rows of a track: place by place, the whole schedule last.
func (m *matrix) rows(i int) ([]Row, error) {
	t := m.plan.tracks[i]
	outcomes, err := m.outcomes(i)
	if err != nil {
		return nil, err
	}
	reference := m.efficiencyReference(outcomes)
	var rows []Row
	for _, at := range t.places() {
		for k, c := range m.plan.policies {
			for s, seed := range m.plan.seeds {
				var ref *stretch
				if reference != nil {
					ref = reference[s].at(at)
				}
				rows = append(rows, newRow(at, c.name, seed, *outcomes[k][s].at(at), ref))
			}
		}
	}
	return rows, nil
}

// places of a track, the whole schedule last.
func (t track) places() []Place {
	if !t.schedule {
		return []Place{{Scenario: t.name}}
	}
	var all []Place
	for i, p := range t.phases {
		all = append(all, Place{Scenario: p.Scenario.Name, Schedule: t.name, Phase: i + 1})
	}
	return append(all, Place{Schedule: t.name})
}

func (o *outcome) at(p Place) *stretch {
	if p.Phase == 0 {
		return &o.whole
	}
	return &o.phases[p.Phase-1]
}

// outcomes of every policy on a track, by seed.
func (m *matrix) outcomes(track int) ([][]outcome, error) {
	var all [][]outcome
	for _, c := range m.plan.policies {
		runs, err := m.outcomesOf(track, c)
		if err != nil {
			return nil, err
		}
		all = append(all, runs)
	}
	return all, nil
}

func (m *matrix) outcomesOf(track int, c choice) ([]outcome, error) {
	switch c.name {
	case BestStatic:
		return m.sweep(track).bestStatic()
	case Oracle:
		return m.sweep(track).oracle()
	}
	return m.of(track, c.run), nil
}

// efficiencyReference is the oracle among the outcomes, else best-static, else
// nil.
func (m *matrix) efficiencyReference(outcomes [][]outcome) []outcome {
	var found []outcome
	for k, c := range m.plan.policies {
		if c.name == Oracle || c.name == BestStatic && found == nil {
			found = outcomes[k]
		}
	}
	return found
}
