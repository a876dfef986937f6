package preflight

import (
	"context"
	"fmt"
	"math"
)

// Windows that traffic is counted over.
const (
	lately  = "15m"
	halfDay = "12h"
)

// few requests say nothing about a share.
const few = 50

func countRestores(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	restored, ok := p.number(ctx, "sum(increase({%s}[1h]))", externalOf(p))
	if !ok {
		return
	}
	copied, ok := p.number(ctx, "sum(increase({%s}[1h]))", p.on("loadTime"))
	if !ok {
		return
	}
	switch {
	case restored > 0 || copied > 0:
		p.fine("restores in the last hour")
	case p.Settings.Objective.Restore > 0:
		p.warn(remedy{"objective.restore", "set it to 0, or let the engines offload (vLLM's kv-transfer-config)"}, "nothing was restored in the last hour, and objective.restore weighs what is not there")
	default:
		p.warn(remedy{"", "give vLLM an offloading connector (kv-transfer-config); unless the thresholds in force stop every restore, as inf does"}, "nothing was restored in the last hour: there is nothing to tune")
	}
}

// externalOf selects tokens brought from outside the GPU; other sources are in
// the same family.
func externalOf(p *probe) string {
	return p.on("external") + `,source=~"|external_kv_transfer"`
}

func compareSLO(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	g := p.Settings.Guard
	if g.Within == 0 {
		p.warn(remedy{"guard.within", "set it to the share of requests that must meet guard.ttft: without it a candidate is stopped by cost and errors only"}, "guard.within is 0: there is no SLO")
		return
	}
	tokens, ok := p.number(ctx, "sum(increase({%s}[30m]))", p.on("ttft"))
	if !ok {
		return
	}
	rows, ok := p.ask(ctx, "sum(increase({%s}[30m]))", p.Settings.SLOMatchers())
	switch {
	case !ok:
	case len(rows) == 0:
		p.fail(remedy{"guard.ttft", "choose a bucket's edge that these engines have"}, "there is no bucket at guard.ttft, %v: the SLO cannot be watched", g.TTFT)
	case tokens < few:
		p.skip("%.0f first tokens in half an hour: too few to tell", tokens)
	case float64(rows[0].Value)/tokens < g.Within:
		p.warn(remedy{"guard.ttft", "choose an SLO that the incumbent keeps: one that is broken already stops no candidate, and counts towards a collapse"},
			"%.1f%% of requests have a TTFT of %v or less, guard.within wants %.1f%%", 100*float64(rows[0].Value)/tokens, g.TTFT, 100*g.Within)
	default:
		p.fine("%.1f%% within %v", 100*float64(rows[0].Value)/tokens, g.TTFT)
	}
}

func countErrors(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	failed, ok := p.number(ctx, `sum(increase({%s,finished_reason="error"}[%s]))`, p.on("finished"), lately)
	if !ok {
		return
	}
	served, ok := p.number(ctx, "sum(increase({%s}[%s]))", p.on("e2e"), lately)
	switch most := p.Settings.Guard.MaxErrorShare; {
	case !ok:
	case served+failed < few:
		p.skip("%.0f requests in %s: too few to tell", served+failed, lately)
	case failed/(served+failed) > most:
		p.warn(remedy{"guard.maxErrorShare", "find out why requests fail before tuning; the guard compares with this and would not notice more"}, "%.1f%% of requests fail, above guard.maxErrorShare", 100*failed/(served+failed))
	default:
		p.fine("%.1f%% of requests fail", 100*failed/(served+failed))
	}
}

func countRequests(ctx context.Context, p *probe) {
	if !p.seen() {
		return
	}
	rate, ok := p.number(ctx, "sum(rate({%s}[%s]))", p.on("e2e"), lately)
	if !ok {
		return
	}
	t := p.Settings.Trial
	judged := rate * (t.Block - t.Washout).Seconds() * float64(t.MaxBlocks)
	switch {
	case rate == 0:
		p.skip("no request has completed in %s: the pool is idle, and nothing is tuned", lately)
	case judged < float64(t.MinRequests):
		p.warn(remedy{"trial.block", "lengthen trial.block or trial.maxBlocks, or lower trial.minRequests"},
			"an arm serves about %.0f requests in a trial, trial.minRequests wants %d: trials end undecided", judged, t.MinRequests)
	default:
		p.fine("%.2g a second: about %.0f an arm of a trial", rate, math.Floor(judged))
	}
}

// compareTraffic holds decisions against requests: far fewer mean an Endpoint
// Picker that is not scraped, or traffic past it.
func compareTraffic(ctx context.Context, p *probe) {
	if !p.seen() || !p.decides() {
		return
	}
	served, ok := p.number(ctx, "sum(increase({%s}[%s]))", p.on("e2e"), lately)
	if !ok {
		return
	}
	decided, ok := p.decisions(ctx, "", lately)
	switch {
	case !ok:
	case served < few:
		p.skip("%.0f requests in %s: too few to tell", served, lately)
	case decided < 0.75*served:
		p.fail(remedy{"pluginSelector", "scrape every replica of the Endpoint Picker, and send all requests through it"},
			"the plugin has decided on %.0f requests of %s, the engines served %.0f: a replica is not scraped, or requests go past it", decided, lately, served)
	case decided > 1.5*served:
		p.warn(remedy{"selector", "let selector and pluginSelector name the same pool"},
			"the plugin has decided on %.0f requests of %s, these engines served %.0f: it also decides for others", decided, lately, served)
	default:
		p.fine("%.0f decisions for %.0f requests in %s", decided, served, lately)
	}
}

// measureEffect compares what engines computed for requests that were to
// recompute with what those could have restored.
func measureEffect(ctx context.Context, p *probe) {
	if !p.decides() {
		return
	}
	mean := func(sum, count, more string) string {
		of := fmt.Sprintf(`{%s,action="recompute",reusable!="0"%s}[1h]`, p.Settings.PluginMatchers(), more)
		return fmt.Sprintf("sum(increase(selective_kv_cost_%s%s)) / (sum(increase(selective_kv_cost_%s%s)) >= %d)", sum, of, count, of, few)
	}
	computed, ok := p.ask(ctx, "%s", mean("computed_tokens_total", "finished_total", `,computed!="unknown"`))
	if !ok {
		return
	}
	reusable, ok := p.ask(ctx, "%s", mean("reusable_tokens_total", "started_total", ""))
	switch {
	case !ok:
	case len(computed) == 0 || len(reusable) == 0 || reusable[0].Value == 0:
		p.skip("too few requests were to recompute in the last hour")
	case computed[0].Value < reusable[0].Value/2:
		p.fail(remedy{"", "update vLLM to 0.31.0 or later, and see that the Endpoint Picker passes kv_transfer_params on: the tuner holds until engines obey"},
			"requests that were told to recompute %.0f tokens had %.0f computed: the engines restore all the same", float64(reusable[0].Value), float64(computed[0].Value))
	default:
		p.fine("requests that were told to recompute did")
	}
}
