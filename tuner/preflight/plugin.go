package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// series of the plugin that are told apart by nothing but the pool.
func (p *probe) plugin(name string, more ...string) string {
	return fmt.Sprintf("selective_kv_%s{%s}", name, strings.Join(append([]string{p.Settings.PluginMatchers()}, more...), ","))
}

func (p *probe) decisions(ctx context.Context, reasons, window string) (float64, bool) {
	matcher := ""
	if reasons != "" {
		matcher = fmt.Sprintf("reason=~%q", reasons)
	}
	series := p.plugin("decisions_total", slices.DeleteFunc([]string{matcher}, func(m string) bool { return m == "" })...)
	return p.number(ctx, "sum(increase(%s[%s]))", series, window)
}

func findPlugin(ctx context.Context, p *probe) {
	rows, ok := p.ask(ctx, "count by (%s) (%s)", p.Settings.ReplicaLabel, p.plugin("revision"))
	if !ok {
		return
	}
	p.replicas = values(rows, model.LabelName(p.Settings.ReplicaLabel))
	switch {
	case slices.Contains(p.replicas, ""):
		p.fail(remedy{"replicaLabel", "set it to the label that differs between replicas, such as pod or instance"}, "the plugin's series have no label %s", p.Settings.ReplicaLabel)
	case len(p.replicas) > 0:
		p.fine("%d replica(s): %s", len(p.replicas), some(p.replicas))
	default:
		whyNoPlugin(ctx, p)
	}
}

func whyNoPlugin(ctx context.Context, p *probe) {
	rows, ok := p.ask(ctx, "count by (pool) (selective_kv_revision)")
	if !ok {
		return
	}
	if pools := values(rows, "pool"); len(pools) > 0 {
		p.fail(remedy{"pluginSelector", fmt.Sprintf("name the pool as the plugin does (name: %s), or set pluginSelector", pools[0])}, "no plugin has {%s}, but there are pools %s", p.Settings.PluginMatchers(), some(pools))
		return
	}
	epp, ok := p.number(ctx, `count({__name__=~"llm_d_epp_.*ready_endpoints|inference_pool_ready_pods|inference_extension_info"})`)
	switch {
	case !ok:
	case epp > 0:
		p.fail(remedy{"", "build the Endpoint Picker with the plugin and name it in its configuration: docs/epp-gie.md, docs/epp-llmd.md"}, "an Endpoint Picker is scraped, but it does not run selective-kv-policy")
	default:
		p.fail(remedy{"", "have Prometheus scrape the Endpoint Picker (a ServiceMonitor on its port http-metrics, with a bearer token)"}, "no Endpoint Picker is scraped")
	}
}

// decides tells whether there is a plugin to look at.
func (p *probe) decides() bool {
	switch {
	case p.down != "":
		p.unasked = p.down
	case len(p.replicas) == 0:
		p.unasked = "no plugin is seen"
	}
	return p.unasked == ""
}

func readSource(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	rows, ok := p.ask(ctx, `%s == 1`, p.plugin("source", `source!="store"`))
	if !ok {
		return
	}
	d, err := p.Documents.Load(ctx)
	switch {
	case len(rows) == 0:
		p.fine("all replicas have seen one")
	case errors.Is(err, store.ErrNotFound):
		readStatic(ctx, p)
	case !slices.Contains(values(rows, "source"), "config"):
		p.warn(remedy{"store", "see whether the tuner runs, and whether both name the same document"}, "replica(s) %s dropped a trial by its expiry and have seen no document since", p.replicasOf(rows))
	case err == nil && p.arriving(d):
		p.skip("replica(s) %s go by their static configuration; the document was written %v ago and may be on its way", p.replicasOf(rows), p.age(d))
	default:
		p.fail(remedy{"", "set tuning.file, or tuning.configMap, in the plugin's configuration to the document that store names"},
			"replica(s) %s go by their static configuration: they have seen no document", p.replicasOf(rows))
	}
}

func (p *probe) replicasOf(rows model.Vector) string {
	return some(values(rows, model.LabelName(p.Settings.ReplicaLabel)))
}

// arrival is how long a document may take to show in the plugin's series: a mounted
// ConfigMap is refreshed within 90 s, and then scraped.
const arrival = 2 * time.Minute

func (p *probe) arriving(d *store.Document) bool { return p.age(d).Abs() < arrival }

func (p *probe) age(d *store.Document) time.Duration { return p.at.Sub(d.UpdatedAt).Round(time.Second) }

// readStatic compares what the plugin's own configuration has in force with what the
// tuner takes it to be, as long as there is no document.
func readStatic(ctx context.Context, p *probe) {
	rows, ok := p.ask(ctx, "max by (name) (%s)", p.plugin("parameter", `arm="baseline"`))
	if !ok {
		return
	}
	initial, next := p.Settings.Initial, "mode observe writes no document. Before another mode, tuning.file or tuning.configMap of the plugin must name it"
	if p.Settings.Mode != tuner.Observe {
		next = "nothing has been published yet. A daemon in mode " + string(p.Settings.Mode) + " writes the first document, with these, when it starts; tuning.file or tuning.configMap of the plugin must name it"
	}
	now, known := tuner.ParamsShown(byLabel(rows, "name"))
	switch {
	case !known:
		p.warn(remedy{"", "set loadPolicy: threshold in the plugin's configuration; with another it takes no document"}, "the plugin shows no thresholds: its loadPolicy has none")
	case now == initial:
		p.fine("static, %s: %s", initial, next)
	case p.Settings.Mode == tuner.Observe:
		p.warn(remedy{"initial", fmt.Sprintf("set initial: %s, so that what is suggested is compared with what is in force", now)},
			"the plugin's configuration has %s, the tuner takes it for %s", now, initial)
	default:
		p.warn(remedy{"initial", fmt.Sprintf("set initial: %s, so that the first document changes nothing", now)},
			"nothing has been published yet. The plugin's configuration has %s, the first document of mode %s will have %s, and all requests are decided by that", now, p.Settings.Mode, initial)
	}
}

func compareRevisions(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	rows, ok := p.ask(ctx, "%s", p.plugin("revision"))
	if !ok {
		return
	}
	var found []int64
	for _, row := range rows {
		found = append(found, int64(row.Value))
	}
	slices.Sort(found)
	low, high := found[0], found[len(found)-1]
	d, err := p.Documents.Load(ctx)
	other := remedy{"store", "let store and the plugin's tuning name the same document, and remove others"}
	switch {
	case errors.Is(err, store.ErrNotFound) && high == 0:
		p.fine("nothing has been published yet, and no replica has seen a document")
	case errors.Is(err, store.ErrNotFound) && low == high:
		p.warn(other, "all replicas show revision %d, and there is no document here: they read another one, or it was removed", low)
	case err != nil && low == high:
		p.skip("all replicas show revision %d; the document here cannot be read", low)
	case err == nil && high > d.Revision:
		p.fail(other, "a replica shows revision %d, the document here has only %d: it reads another document, or this one was restored from an older copy", high, d.Revision)
	case err == nil && low < d.Revision && p.arriving(d):
		p.skip("replicas show revisions %d to %d; %d was written %v ago and may be on its way", low, high, d.Revision, p.age(d))
	case low != high:
		p.fail(other, "replicas show revisions %d to %d: a trial would compare a mixture", low, high)
	case low < d.Revision:
		p.fail(other, "all replicas show revision %d, the document here has %d: it does not arrive", low, d.Revision)
	default:
		p.fine("all at %d", low)
	}
}

func countRefused(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	rows, ok := p.ask(ctx, "sum by (reason) (increase(%s[1h])) > 0", p.plugin("documents_refused_total"))
	switch {
	case !ok:
	case len(rows) > 0:
		p.fail(remedy{"store", "kubectl logs of the Endpoint Picker says which field; see docs/runbooks.md, KvtunerDocumentRefused"}, "documents were refused in the last hour: %s", some(values(rows, "reason")))
	default:
		p.fine("none refused in the last hour")
	}
}

func compareBounds(ctx context.Context, p *probe) {
	d, err := p.Documents.Load(ctx)
	if err == nil && !p.Settings.Bounds.Contains(d.Baseline) {
		within, _ := p.Settings.Bounds.Clamp(d.Baseline)
		p.warn(remedy{"bounds", "widen bounds if that is a surprise"}, "the document's %s lies outside bounds: kvtuner starts from %s", d.Baseline, within)
		return
	}
	if !p.decides() {
		return
	}
	rows, ok := p.ask(ctx, "%s == 1", p.plugin("clamped"))
	switch {
	case !ok:
	case len(rows) > 0:
		p.fail(remedy{"bounds", "set bounds here and tuning.bounds in the plugin to the same values: what is tried is not what runs"}, "the plugin holds the %s back to its own bounds", some(values(rows, "arm")))
	default:
		p.fine("within both")
	}
}

// nothingReusable counts requests that have nothing to restore.
func (p *probe) nothingReusable(ctx context.Context, window string) (float64, bool) {
	return p.number(ctx, `sum(increase(%s[%s]))`, p.plugin("external_reusable_tokens_bucket", `le=~"0(\\.0)?"`), window)
}

func countEvidence(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	without, ok := p.decisions(ctx, "no_evidence|invalid_evidence", lately)
	if !ok {
		return
	}
	all, ok := p.decisions(ctx, "", lately)
	if !ok {
		return
	}
	nothing, ok := p.nothingReusable(ctx, lately)
	switch producer := (remedy{"", "give the plugin a producer that knows tiers: KV events of the engines, and prefixMatchInfoProducerName (docs/epp-gie.md)"}); {
	case !ok:
	case all < few:
		p.skip("%.0f decisions in %s: too few to tell", all, lately)
	case without > all/2:
		p.fail(producer, "%.0f%% of the requests are decided without evidence: the thresholds have no effect on them", 100*without/all)
	case without < all && nothing >= 0.99*(all-without):
		p.warn(producer, "no request has anything to restore: is the evidence about the GPU alone?")
	default:
		p.fine("%.0f%% of the requests have evidence", 100*(all-without)/all)
	}
}

// manyStopped requests without one probe are no accident: by default one of 50 is
// let through.
const manyStopped = 1000

func countProbes(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	stopped, ok := p.decisions(ctx, "below_minimum|queue_gate", "1h")
	if !ok {
		return
	}
	probes, ok := p.decisions(ctx, "probe_.*", "1h")
	if !ok {
		return
	}
	nothing, ok := p.nothingReusable(ctx, "1h")
	stopped = max(0, stopped-nothing) // what has nothing to restore is no probe
	switch {
	case !ok:
	case probes == 0 && stopped > manyStopped:
		p.warn(remedy{"", "set probeFraction in the plugin's configuration (default 0.02): without probes a gate that stops every restore ends the evidence it needs"}, "%.0f requests were stopped in the last hour, and none let through as a probe", stopped)
	case probes == 0:
		p.skip("%.0f requests stopped in the last hour: too few to tell", stopped)
	default:
		p.fine("%.0f probes for %.0f stopped requests", probes, stopped)
	}
}

func countFeedback(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	all, ok := p.number(ctx, "sum(increase(%s[1h]))", p.plugin("cost_finished_total"))
	if !ok {
		return
	}
	started, ok := p.number(ctx, "sum(increase(%s[1h]))", p.plugin("cost_started_total"))
	if !ok {
		return
	}
	unknown, ok := p.number(ctx, "sum(increase(%s[1h]))", p.plugin("cost_finished_total", `computed="unknown"`))
	switch {
	case !ok:
	case started < few:
		p.skip("%.0f streamed requests with evidence in the last hour: too few to tell; others teach nothing about costs", started)
	case all == 0:
		p.fail(remedy{"", "let the Endpoint Picker pass responses through the plugin (its response hooks)"}, "of %.0f requests no first token was seen: there are no cost curves", started)
	case unknown > all/2:
		p.warn(remedy{"", "have clients ask for stream_options.include_usage, and run vLLM with --enable-prompt-tokens-details: cost curves are fitted to computed tokens"}, "of %.0f%% of the requests it is not known how many tokens were computed", 100*unknown/all)
	default:
		p.fine("known for %.0f%% of the requests", 100*(all-unknown)/all)
	}
}

// oldQueue is an age of the queue's last sample at which the gate has long been
// reset, in seconds; Endpoint Pickers look each 50 ms.
const oldQueue = 30

func readQueues(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	followed, ok := p.number(ctx, "max(%s)", p.plugin("endpoints"))
	if !ok {
		return
	}
	age, ok := p.number(ctx, "max(%s)", p.plugin("endpoint_sample_age_seconds"))
	switch r := (remedy{"", "name the engine's metric in the plugin's waitingSignal, and see that the Endpoint Picker scrapes its model servers"}); {
	case !ok:
	case followed == 0:
		p.fail(r, "the plugin follows no endpoint's queue: its gate never closes")
	case age > oldQueue:
		p.warn(r, "the queue of an endpoint was last seen %.0f s ago: its gate is open meanwhile", age)
	default:
		p.fine("%.0f endpoint(s), the oldest sample is %.1f s old", followed, age)
	}
}
