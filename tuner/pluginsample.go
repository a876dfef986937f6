package tuner

import (
	"cmp"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// PluginSample is what the plugin's replicas exported in a window.
type PluginSample struct {
	State State
	Why   string
	// Oldest and Newest revision in force among the replicas.
	Oldest, Newest int64
	Replicas       int
	// Adaptive tells that the configuration of every replica permits
	// store.Adaptive.
	Adaptive bool
	// Expired tells that a replica has dropped a trial's candidate by its clock.
	Expired bool
	// Loads are decisions to restore on evidence, probes not among them;
	// Recomputes those to recompute, GateStops the ones because of the gate.
	Loads, Recomputes, GateStops float64
	// Curve is the evidence behind the cost curves, by action and bucket of
	// reusable tokens.
	Curve []CurvePoint
}

// CurvePoint sums the requests of one action whose externally reusable tokens
// fell in one power-of-two bucket.
type CurvePoint struct {
	Load bool
	// Reusable is the lower edge of the bucket, in tokens.
	Reusable float64
	// Computed is the lower edge of the bucket of tokens the engine computed, of
	// finished requests; started ones are counted under 0.
	Computed float64
	// Started requests and the sum of their reusable tokens; Finished ones
	// (first token seen) with the sums of their TTFT and computed tokens.
	Started, ReusableTokens, Finished, TTFTSeconds, ComputedTokens float64
}

const (
	actionLoad      = "load"
	reasonReusable  = "reusable"
	reasonQueueGate = "queue_gate"
)

// curveKey identifies a curve point.
type curveKey struct {
	load               bool
	reusable, computed float64
}

func (o *observer) pluginSample(rows model.Matrix, from, to time.Time) (PluginSample, error) {
	replicas := bySource(rows, o.settings.ReplicaLabel)
	if len(replicas) == 0 {
		return PluginSample{}, fmt.Errorf("%w of the plugin; check pluginSelector, now %s, and that the EPP runs selective-kv-policy", errNoSeries, pluginSelector(o.settings))
	}
	w := window{from: model.TimeFromUnixNano(from.UnixNano()), to: model.TimeFromUnixNano(to.UnixNano())}
	p := PluginSample{State: OK, Replicas: len(replicas), Oldest: math.MaxInt64, Adaptive: true}
	curve := map[curveKey]*CurvePoint{}
	for _, replica := range replicas {
		if replica.newest() <= w.to.Add(-staleAfter(o.settings.ScrapeInterval)) {
			return PluginSample{}, fmt.Errorf("EPP replica %s has sent nothing since %s", replica.name, replica.newest().Time().UTC().Format(time.RFC3339))
		}
		if err := p.addReplica(replica, w, curve); err != nil {
			return PluginSample{}, err
		}
	}
	p.Curve = sortedCurve(curve)
	return p, nil
}

func (p *PluginSample) addReplica(replica source, w window, curve map[curveKey]*CurvePoint) error {
	r := reader{source: replica, window: w}
	oldest, newest := r.latest(seriesRevision)
	p.Oldest, p.Newest = min(p.Oldest, oldest), max(p.Newest, newest)
	p.Adaptive = p.Adaptive && r.has(seriesAdaptive) && r.gauge(seriesAdaptive) == 1
	p.Expired = p.Expired || r.isSet(seriesSource, labelSource, sourceExpired)
	// A replica that has only just appeared shows its revision; what it counted
	// before is not known.
	if r.err != nil || replica.joined(w) {
		return r.err
	}
	for _, row := range replica.series[seriesDecisions] {
		p.addDecisions(row.Metric, r.finite(seriesDecisions, w.increase(row.Values)))
	}
	for _, name := range costSeries {
		for _, row := range replica.series[name] {
			if row.Metric[labelComputed] == computedUnknown {
				continue
			}
			point, err := curvePoint(row.Metric, curve)
			if err != nil {
				return fmt.Errorf("EPP replica %s: %w", replica.name, err)
			}
			point.add(name, r.finite(name, w.increase(row.Values)))
		}
	}
	return r.err
}

func (p *PluginSample) addDecisions(m model.Metric, n float64) {
	reason := string(m[labelReason])
	switch {
	case reason == reasonReusable:
		p.Loads += n
	case string(m[labelAction]) != actionLoad:
		p.Recomputes += n
	}
	if reason == reasonQueueGate {
		p.GateStops += n
	}
}

func curvePoint(m model.Metric, curve map[curveKey]*CurvePoint) (*CurvePoint, error) {
	reusable, err := bucketEdge(m, labelReusable)
	if err != nil {
		return nil, err
	}
	computed := 0.0
	if _, ok := m[labelComputed]; ok {
		if computed, err = bucketEdge(m, labelComputed); err != nil {
			return nil, err
		}
	}
	key := curveKey{load: string(m[labelAction]) == actionLoad, reusable: reusable, computed: computed}
	if curve[key] == nil {
		curve[key] = &CurvePoint{Load: key.load, Reusable: reusable, Computed: computed}
	}
	return curve[key], nil
}

func bucketEdge(m model.Metric, label model.LabelName) (float64, error) {
	edge, err := strconv.ParseUint(strings.TrimSuffix(string(m[label]), "+"), 10, 32)
	if err != nil || edge&(edge-1) != 0 { // powers of two only: a hostile page cannot make thousands
		return 0, fmt.Errorf("%s has %s=%q, which is no bucket of tokens", m[model.MetricNameLabel], label, m[label])
	}
	return float64(edge), nil
}

func (c *CurvePoint) add(name string, v float64) {
	switch name {
	case seriesCostStarted:
		c.Started += v
	case seriesCostReusable:
		c.ReusableTokens += v
	case seriesCostFinished:
		c.Finished += v
	case seriesCostTTFT:
		c.TTFTSeconds += v
	case seriesCostComputed:
		c.ComputedTokens += v
	}
}

func sortedCurve(curve map[curveKey]*CurvePoint) []CurvePoint {
	out := make([]CurvePoint, 0, len(curve))
	for _, c := range curve {
		out = append(out, *c)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Load != b.Load {
			return b.Load
		}
		return cmp.Or(cmp.Compare(a.Reusable, b.Reusable), cmp.Compare(a.Computed, b.Computed)) < 0
	})
	return out
}
