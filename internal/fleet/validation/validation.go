// Package validation shows how well a profile of the fleet model fits
// measurements: as JSON, as a table, as the document docs/fleet-model.md with
// its plots, and as the report of a fit. It renders a fleet.Comparison and
// simulates nothing.
package validation

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// Check is a profile held against measurements, with what that took.
type Check struct {
	Profile    fleet.Profile
	Comparison fleet.Comparison
	Seeds      []uint64
	Duration   time.Duration
	// Shipped tells that profile and measurements are those in the program.
	Shipped bool
	// Plots is the folder the document finds its pictures in; empty is none.
	Plots string
}

// part is the fitted or the held-out half.
type part struct {
	fleet.FitErrors
	Rows      []row   `json:"runs"`
	Orderings []order `json:"orderings"`
}

// row is one measured run beside the simulated one. Spreads are standard
// deviations over the seeds, relative to the mean.
type row struct {
	Report       string `json:"report"`
	PrefixTokens int    `json:"prefix_tokens"`
	Concurrency  int    `json:"concurrency"`
	Policy       string `json:"policy"`

	Throughput       pair     `json:"requests_per_s"`
	ThroughputSpread *float64 `json:"requests_per_s_spread"`
	TTFT             pair     `json:"ttft_mean_s"`
	TTFTSpread       *float64 `json:"ttft_mean_spread"`
	Tail             pair     `json:"ttft_p99_s"`
	ITL              pair     `json:"itl_mean_s"`
	Waiting          pair     `json:"waiting_mean"`
	Share            pair     `json:"external_prompt_share"`
	GPUShare         pair     `json:"gpu_hit_share"`
	Lookup           pair     `json:"lookup_mean_s"`
	Writes           pair     `json:"nvme_write_gib_per_s"`
}

// pair is a quantity as published, null if it was not, and as simulated.
type pair struct {
	Published *float64 `json:"published"`
	Simulated *float64 `json:"simulated"`
}

// off is the relative error with so many decimals, a dash where there is nothing
// to compare.
func (p pair) off(decimals int) string {
	if p.Published == nil || p.Simulated == nil {
		return "-"
	}
	return fmt.Sprintf("%+.*f%%", decimals, 100*(*p.Simulated / *p.Published - 1))
}

// order is a pair of policies in a cell: by how much A's throughput is above
// B's.
type order struct {
	Report       string   `json:"report"`
	PrefixTokens int      `json:"prefix_tokens"`
	Concurrency  int      `json:"concurrency"`
	A            string   `json:"a"`
	B            string   `json:"b"`
	Published    float64  `json:"published_difference"`
	Simulated    *float64 `json:"simulated_difference"`
	Spread       *float64 `json:"simulated_spread"`
	Tie          bool     `json:"tie"`
	Right        bool     `json:"right"`
}

// PublishedDifference is never unknown.
func (o order) PublishedDifference() *float64 { return &o.Published }

func (c Check) part(fitted bool) part {
	p := part{FitErrors: c.Comparison.HeldOut}
	if fitted {
		p.FitErrors = c.Comparison.Fitted
	}
	for _, r := range c.Comparison.Runs {
		if r.Fitted == fitted {
			p.Rows = append(p.Rows, newRow(r))
		}
	}
	for _, o := range c.Comparison.Orderings() {
		if o.Fitted == fitted {
			p.Orderings = append(p.Orderings, order{
				o.Report, o.PrefixTokens, o.Concurrency, o.A.String(), o.B.String(),
				o.Published, known(o.Simulated), known(o.Spread), o.Tie, o.Right,
			})
		}
	}
	return p
}

func newRow(r fleet.Run) row {
	m, s := r.Published, r.Simulated
	out := row{
		Report: m.Report, PrefixTokens: m.PrefixTokens, Concurrency: m.Concurrency, Policy: m.Setting.String(),
		Throughput:       pair{&m.RequestsPerSecond, known(s.RequestsPerSecond)},
		ThroughputSpread: known(r.Spread(func(s fleet.Stats) float64 { return s.RequestsPerSecond })),
		TTFT:             pair{scaled(m.TTFTMeanMS, 1e-3), known(s.TTFTMean)},
		TTFTSpread:       known(r.Spread(func(s fleet.Stats) float64 { return s.TTFTMean })),
		Tail:             pair{scaled(m.TTFTP99MS, 1e-3), known(s.TTFTP99)},
		ITL:              pair{scaled(m.ITLMeanMS, 1e-3), known(s.ITLMean)},
		Waiting:          pair{m.WaitingMean, known(s.WaitingMean)},
		Share:            pair{scaled(m.ExternalSharePercent, 1e-2), known(s.ExternalPromptShare)},
		GPUShare:         pair{nil, known(s.GPUHitShare)},
		Lookup:           pair{nil, known(s.LookupMean)},
		Writes:           pair{nil, known(s.NVMeWriteGiBps)},
	}
	if in := m.Mechanism; in != nil {
		out.GPUShare.Published = scaled(&in.GPUHitSharePercent, 1e-2)
		out.Lookup.Published = &in.LookupMean
		out.Writes.Published = &in.WriteGiBps
	}
	return out
}

// known is nil for what is not a number.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	w := *v * by
	return &w
}

// WriteJSON writes the errors of both halves, under fitted and held_out, with
// every run and every ordering.
func (c Check) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Profile  string   `json:"profile"`
		Seeds    []uint64 `json:"seeds"`
		Duration float64  `json:"duration_s"`
		Fitted   part     `json:"fitted"`
		HeldOut  part     `json:"held_out"`
	}{c.Profile.Name, c.Seeds, c.Duration.Seconds(), c.part(true), c.part(false)})
}
