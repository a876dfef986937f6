package bench

// Summary is a policy at a place over all seeds.
type Summary struct {
	Place
	Policy string `json:"policy"`
	Pair   string `json:"pair,omitempty"`
	Seeds  int    `json:"seeds"`
	// Metrics by the name of the row's field.
	Metrics map[string]Estimate `json:"metrics"`
	// Versus has the differences from the reference, pair by pair of the same
	// seed, as shares of it: -0.1 is 10% less.
	Versus *Versus `json:"versus,omitempty"`
}

// Versus is the comparison with a reference policy.
type Versus struct {
	Policy  string              `json:"policy"`
	Metrics map[string]Estimate `json:"metrics"`
}

// metric is a quantity that is summarised.
type metric struct {
	name string
	of   func(Row) float64
	// paired metrics are also compared with the reference.
	paired bool
}

var metrics = []metric{
	{"requests_per_s", func(r Row) float64 { return float64(r.RequestsPerS) }, true},
	{"output_tokens_per_s", func(r Row) float64 { return float64(r.OutputTokensPerS) }, true},
	{"ttft_mean_s", func(r Row) float64 { return float64(r.TTFTMean) }, true},
	{"ttft_p50_s", func(r Row) float64 { return float64(r.TTFTP50) }, true},
	{"ttft_p99_s", func(r Row) float64 { return float64(r.TTFTP99) }, true},
	{"itl_mean_s", func(r Row) float64 { return float64(r.ITLMean) }, true},
	{"e2e_mean_s", func(r Row) float64 { return float64(r.E2EMean) }, true},
	{"waiting_mean", func(r Row) float64 { return float64(r.WaitingMean) }, false},
	{"external_prompt_share", func(r Row) float64 { return float64(r.ExternalPromptShare) }, false},
	{"moves", func(r Row) float64 { return float64(r.Moves) }, false},
	{"trials", func(r Row) float64 { return float64(r.Trials) }, false},
	{"aborted", func(r Row) float64 { return float64(r.Aborted) }, false},
}

const efficiencyName = "efficiency"

// summarise groups rows that differ in the seed only; rows of a group are
// consecutive.
func summarise(rows []Row, reference string) []Summary {
	groups := group(rows)
	var all []Summary
	for _, g := range groups {
		s := Summary{Place: g[0].Place, Policy: g[0].Policy, Pair: g[0].Pair, Seeds: len(g), Metrics: map[string]Estimate{}}
		for _, m := range metrics {
			s.Metrics[m.name] = EstimateOf(values(g, m))
		}
		if g[0].Efficiency != nil {
			s.Metrics[efficiencyName] = EstimateOf(values(g, metric{of: func(r Row) float64 { return float64(*r.Efficiency) }}))
		}
		if partners := find(groups, g[0].Place, reference); partners != nil && g[0].Policy != reference {
			s.Versus = versus(g, partners)
		}
		all = append(all, s)
	}
	return all
}

func group(rows []Row) [][]Row {
	var groups [][]Row
	for i, r := range rows {
		if i == 0 || r.Place != rows[i-1].Place || r.Policy != rows[i-1].Policy {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, r)
	}
	return groups
}

func find(groups [][]Row, at Place, policy string) []Row {
	for _, g := range groups {
		if g[0].Place == at && g[0].Policy == policy {
			return g
		}
	}
	return nil
}

func versus(own, partners []Row) *Versus {
	v := &Versus{Policy: partners[0].Policy, Metrics: map[string]Estimate{}}
	for _, m := range metrics {
		if m.paired {
			v.Metrics[m.name] = EstimateOf(relative(values(own, m), values(partners, m)))
		}
	}
	return v
}

func values(rows []Row, m metric) []float64 {
	out := make([]float64, len(rows))
	for i, r := range rows {
		out[i] = m.of(r)
	}
	return out
}
