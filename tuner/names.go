package tuner

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// names translate a set-up's series into those a sample is made of.
type names struct {
	// asked for, in order; of maps each to what it stands for.
	asked []string
	of    map[string]meaning
}

// meaning of a series: which one it stands for, and how much it is preferred
// where an engine has several (0 first).
type meaning struct {
	series string
	rank   int
	alternative
}

// names of the settings; they were validated.
func (m Metrics) names() names {
	p, err := PresetByName(m.Preset)
	if err != nil {
		p = presets[0]
	}
	n := names{of: map[string]meaning{}}
	overrides := m.overrides()
	for _, s := range signals {
		metric, overridden := overrides[s.name]
		renamed, differs := p.renamed[s.name]
		switch {
		case overridden:
			n.addOverride(s, metric)
		case differs:
			n.addAlternatives(s.series[0], "", 0, renamed)
		default:
			for i, prefix := range p.prefixes {
				n.addOwn(s, prefix, i)
			}
		}
	}
	return n
}

func (n *names) add(name string, m meaning) {
	if _, there := n.of[name]; there {
		return
	}
	n.asked = append(n.asked, name)
	n.of[name] = m
}

// addOwn adds vLLM's names of a signal under a prefix.
func (n *names) addOwn(s signal, prefix string, rank int) {
	const perPrefix = 8 // more than any signal has alternatives
	for _, series := range s.series {
		n.add(prefix+strings.TrimPrefix(series, vllmPrefix), meaning{series: series, rank: rank * perPrefix})
	}
	n.addAlternatives(s.series[0], prefix, rank*perPrefix+1, s.others)
}

func (n *names) addAlternatives(series, prefix string, rank int, others []alternative) {
	for i, a := range others {
		n.add(prefix+a.name, meaning{series: series, rank: rank + i, alternative: a})
	}
}

// addOverride adds a metric the user named: a histogram by its base name.
func (n *names) addOverride(s signal, metric string) {
	for _, series := range s.series {
		suffix := ""
		for _, end := range []string{"_sum", "_count", "_bucket"} {
			if len(s.series) > 1 && strings.HasSuffix(series, end) {
				suffix = end
			}
		}
		n.add(metric+suffix, meaning{series: series})
	}
}

// translate names the series as a sample knows them. Of several alternatives an
// engine exposes only the most preferred is kept: they count the same.
func (n names) translate(rows model.Matrix, endpointLabel string) model.Matrix {
	type place struct {
		engine model.LabelValue
		series string
	}
	best := map[place]int{}
	meanings := make([]meaning, len(rows))
	for i, row := range rows {
		m, known := n.of[string(row.Metric[model.MetricNameLabel])]
		if !known || m.label != "" && string(row.Metric[model.LabelName(m.label)]) != m.value {
			m.rank = -1
		}
		meanings[i] = m
		at := place{row.Metric[model.LabelName(endpointLabel)], m.series}
		if rank, seen := best[at]; m.rank >= 0 && (!seen || m.rank < rank) {
			best[at] = m.rank
		}
	}
	var out model.Matrix
	for i, row := range rows {
		m := meanings[i]
		if m.rank >= 0 && m.rank == best[place{row.Metric[model.LabelName(endpointLabel)], m.series}] {
			out = append(out, m.rename(row))
		}
	}
	return out
}

func (m meaning) rename(row *model.SampleStream) *model.SampleStream {
	if string(row.Metric[model.MetricNameLabel]) == m.series {
		return row
	}
	renamed := *row
	renamed.Metric = row.Metric.Clone()
	renamed.Metric[model.MetricNameLabel] = model.LabelValue(m.series)
	if m.series == seriesBySource && m.name != "" {
		renamed.Metric[labelSource] = sourceExternal
	}
	return &renamed
}

// lacks lists the required signals of which an engine has no series, by the
// names asked for.
func (n names) lacks(engine source) []string {
	var missing []string
	for _, s := range signals {
		for _, series := range s.series {
			if s.required && series != seriesTTFTBucket && len(engine.series[series]) == 0 {
				missing = append(missing, n.spelled(series))
			}
		}
	}
	return missing
}

// spelled is what a series is called in this set-up.
func (n names) spelled(series string) string {
	if i := slices.IndexFunc(n.asked, func(name string) bool { return n.of[name].series == series }); i >= 0 {
		return n.asked[i]
	}
	return series
}
