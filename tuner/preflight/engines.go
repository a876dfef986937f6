package preflight

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/tuner"
)

func (p *probe) label() string { return p.Settings.EndpointLabel }

// on selects a signal of the pool's engines; of a histogram the count.
func (p *probe) on(signal string) string {
	if signal == "e2e" || signal == "ttft" {
		return p.Settings.EngineMatchers(signal, "_count")
	}
	return p.Settings.EngineMatchers(signal, "")
}

func findEngines(ctx context.Context, p *probe) {
	rows, ok := p.ask(ctx, "count by (%s) ({%s})", p.label(), p.on("running"))
	if !ok {
		return
	}
	p.engines = values(rows, model.LabelName(p.label()))
	if len(p.engines) > 0 {
		p.fine("%d engine(s): %s", len(p.engines), some(p.engines))
		return
	}
	whyNoEngines(ctx, p)
}

// whyNoEngines looks for the series elsewhere: under the preset's names without
// the selector, then under those of other presets.
func whyNoEngines(ctx context.Context, p *probe) {
	bare := p.Settings
	bare.Selector = ""
	if n, ok := p.number(ctx, "count({%s})", bare.EngineMatchers("running", "")); !ok {
		return
	} else if n > 0 {
		p.fail(remedy{"selector", "correct it; kvtuner check --detect lists the pools there are"},
			"selector %q matches no engine, %.0f series of preset %q have other labels", p.Settings.Selector, n, preset(p.Settings))
		return
	}
	for _, other := range tuner.Presets() {
		bare.Metrics = tuner.Metrics{Preset: other.Name}
		n, ok := p.number(ctx, "count({%s})", bare.EngineMatchers("running", ""))
		if !ok {
			return
		}
		if n > 0 {
			p.fail(remedy{"metrics.preset", "set metrics.preset: " + other.Name}, "there are no engines under the names of preset %q, but %.0f series under those of %q", preset(p.Settings), n, other.Name)
			return
		}
	}
	p.fail(remedy{"prometheus.url", "have this Prometheus scrape the engines (a PodMonitor on vLLM's /metrics), or ask the one that does"},
		"Prometheus has no engine's series, whatever the preset")
}

func preset(s tuner.Settings) string {
	if s.Metrics.Preset == "" {
		return tuner.Presets()[0].Name
	}
	return s.Metrics.Preset
}

// seen tells whether there are engines to look at.
func (p *probe) seen() bool {
	switch {
	case p.down != "":
		p.unasked = p.down
	case len(p.engines) == 0:
		p.unasked = "no engine is seen"
	}
	return p.unasked == ""
}

func tellEnginesApart(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	if !slices.Contains(p.engines, "") {
		p.fine("by %s", p.label())
		return
	}
	rows, ok := p.ask(ctx, "{%s}", p.on("running"))
	if !ok {
		return
	}
	better := distinct(rows, presetOf(p.Settings).EndpointLabels)
	if better == "" {
		better = "the label that differs between engines"
	}
	p.fail(remedy{"endpointLabel", "set endpointLabel: " + better}, "engines have no label %s: they are taken for one, and its restarts for resets", p.label())
}

func presetOf(s tuner.Settings) tuner.Preset {
	known, err := tuner.PresetByName(s.Metrics.Preset)
	if err != nil {
		return tuner.Presets()[0]
	}
	return known
}

// distinct is the label, of candidates in order, that tells the most series
// apart and is on all of them.
func distinct(rows model.Vector, candidates []string) string {
	best, most := "", 0
	for _, c := range candidates {
		found := values(rows, model.LabelName(c))
		if !slices.Contains(found, "") && len(found) > most {
			best, most = c, len(found)
		}
	}
	return best
}

// scrapedTwice finds engines of which one gauge is there several times, by labels
// that are the scraping's rather than the engine's.
func scrapedTwice(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	rows, ok := p.ask(ctx, "count by (%s, engine, model_name) ({%s}) > 1", p.label(), p.on("running"))
	if !ok || len(rows) == 0 || slices.Contains(p.engines, "") {
		if ok {
			p.fine("each engine is there once")
		}
		return
	}
	all, ok := p.ask(ctx, "{%s}", p.on("running"))
	if !ok {
		return
	}
	double := values(rows, model.LabelName(p.label()))
	labels := differing(all, p.label(), double[0])
	p.fail(remedy{"selector", fmt.Sprintf("choose one of them in selector (they differ in %s), or scrape the engines once", strings.Join(labels, ", "))},
		"%d engine(s) are scraped more than once (%s): each request counts twice", len(double), some(double))
}

// differing are the labels in which the series of one engine differ.
func differing(rows model.Vector, label, engine string) []string {
	seen := map[model.LabelName]map[model.LabelValue]bool{}
	n := 0
	for _, row := range rows {
		if string(row.Metric[model.LabelName(label)]) != engine {
			continue
		}
		n++
		for name, value := range row.Metric {
			if seen[name] == nil {
				seen[name] = map[model.LabelValue]bool{}
			}
			seen[name][value] = true
		}
	}
	var out []string
	for name, values := range seen {
		if len(values) > 1 {
			out = append(out, string(name))
		}
	}
	sort.Strings(out)
	return out
}

func countEngines(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	n := len(p.engines)
	before, ok := p.ask(ctx, "count by (%s) (count_over_time({%s}[15m]))", p.label(), p.on("running"))
	if !ok {
		return
	}
	routed, ok := p.number(ctx, "max(selective_kv_endpoints{%s})", p.Settings.PluginMatchers())
	if !ok {
		return
	}
	switch gone := len(values(before, model.LabelName(p.label()))) - n; {
	case n < p.Settings.Endpoints:
		p.fail(remedy{"endpoints", fmt.Sprintf("bring the missing engines back, have Prometheus scrape them, or set endpoints: %d", n)}, "%d engine(s) are seen, endpoints says %d", n, p.Settings.Endpoints)
	case int(routed) > n:
		p.fail(remedy{"selector", "widen the selector, or scrape all engines: a restore on one slows the storage of all"}, "the plugin routes to %.0f endpoints, %d engine(s) are seen", routed, n)
	case gone > 0:
		p.warn(remedy{"", "if they were scaled down there is nothing to do; otherwise look at the targets of Prometheus"}, "%d engine(s) were seen in the last 15 minutes and are gone", gone)
	case p.Settings.Endpoints == 0:
		p.fine("%d seen; set endpoints: %d and a sample without one of them is unknown", n, n)
	default:
		p.fine("%d seen, %d wanted at least", n, p.Settings.Endpoints)
	}
}

func haveSignals(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	var lacking []string
	for _, signal := range tuner.RequiredSignals() {
		rows, ok := p.ask(ctx, "count by (%s) ({%s})", p.label(), p.on(signal))
		if !ok {
			return
		}
		have := byLabel(rows, p.label())
		for _, engine := range p.engines {
			if have[engine] == 0 {
				lacking = append(lacking, fmt.Sprintf("%s of %s", signal, engine))
			}
		}
	}
	if len(lacking) > 0 {
		p.fail(remedy{"metrics.names", "if it is exported under another name, say so (metrics.names), or choose the preset of this set-up; a relabelling may drop it"}, "missing: %s", some(lacking))
		return
	}
	p.fine("all there")
}

// measureInterval looks at the distances between points.
func measureInterval(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	rows, ok := p.series(ctx, fmt.Sprintf("{%s}[%s]", p.on("running"), model.Duration(max(10*time.Minute, 5*p.Settings.ScrapeInterval))))
	if !ok {
		return
	}
	measured, set := interval(rows), p.Settings.ScrapeInterval
	r := remedy{"scrapeInterval", fmt.Sprintf("set scrapeInterval: %v, as the scrape job or PodMonitor has it", measured)}
	switch {
	case measured == 0:
		p.skip("too few points yet to tell")
	case measured > set+set/5:
		p.fail(r, "engines are scraped each %v, scrapeInterval is %v: windows stay empty, and engines look dark", measured, set)
	case measured < set-set/5:
		p.warn(r, "engines are scraped each %v, scrapeInterval is %v: they are noticed missing too late", measured, set)
	default:
		p.fine("each %v", measured)
	}
}

// interval is the median distance between neighbouring points, to the second.
func interval(rows model.Matrix) time.Duration {
	var gaps []float64
	for _, row := range rows {
		for i := 1; i < len(row.Values); i++ {
			gaps = append(gaps, row.Values[i].Timestamp.Sub(row.Values[i-1].Timestamp).Seconds())
		}
	}
	if len(gaps) < 2 {
		return 0
	}
	slices.Sort(gaps)
	return max(time.Second, time.Duration(math.Round(gaps[len(gaps)/2]))*time.Second)
}

// manyResets an hour are no rollout any more.
const manyResets = 3

func countResets(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	rows, ok := p.ask(ctx, "sum by (%s) (resets({%s}[1h])) > %d", p.label(), p.on("e2e"), manyResets)
	if !ok {
		return
	}
	if len(rows) > 0 {
		p.warn(remedy{"", "look for crashes: kubectl describe pod, its last state and its logs"}, "the counters of %s were reset more than %d times in an hour: the engine restarts, and each restart ends a trial's sample",
			some(values(rows, model.LabelName(p.label()))), manyResets)
		return
	}
	p.fine("none out of the ordinary")
}

func countModels(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	for _, label := range presetOf(p.Settings).ModelLabels {
		rows, ok := p.ask(ctx, "count by (%s) ({%s})", label, p.on("running"))
		if !ok {
			return
		}
		if models := values(rows, model.LabelName(label)); len(models) > 1 {
			p.warn(remedy{"selector", fmt.Sprintf("give each model a pool of its own, with %s in its selector; adapters of one base model may share one", label)}, "the pool serves %s: what is best for one need not be for another", some(models))
			return
		}
	}
	p.fine("one")
}

// firstObedient is the first vLLM that honours max_load_tokens.
var firstObedient = [3]int{0, 31, 0}

var imageTag = regexp.MustCompile(`vllm[^:]*:.*?(\d+)\.(\d+)\.(\d+)`)

// readVersions reads the tags of the engines' images off kube-state-metrics: vLLM
// itself exports no version.
func readVersions(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	rows, ok := p.ask(ctx, "kube_pod_container_info{pod=~%q}", alternatives(p.engines))
	if !ok {
		return
	}
	var known, old []string
	for _, row := range rows {
		version, is := tagOf(string(row.Metric["image"]))
		if !is {
			continue
		}
		known = append(known, version.String())
		if version.before(firstObedient) {
			old = append(old, fmt.Sprintf("%s of %s", version, row.Metric["pod"]))
		}
	}
	slices.Sort(known)
	slices.Sort(old)
	switch {
	case len(old) > 0:
		p.fail(remedy{"", "update vLLM to 0.31.0 or later: an older one accepts max_load_tokens and ignores it"}, "vLLM is %s", some(old))
	case len(known) > 0:
		p.fine("vLLM %s", some(slices.Compact(known)))
	default:
		p.skip("not visible here (kube-state-metrics would show the image's tag); the check \"effect\" sees whether engines obey")
	}
}

type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) before(o version) bool { return slices.Compare(v[:], o[:]) < 0 }

func tagOf(image string) (version, bool) {
	m := imageTag.FindStringSubmatch(image)
	if m == nil {
		return version{}, false
	}
	var v version
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits only
	}
	return v, true
}

func alternatives(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return strings.Join(quoted, "|")
}
