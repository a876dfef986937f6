package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func overview() *dashboard.DashboardBuilder {
	return page("overview", "Overview", "What kvtuner changed, when, and what became of the requests. Vertical lines are its decisions.").
		WithPanel(ready()).WithPanel(trial()).WithPanel(movesToday()).WithPanel(restoreShare()).
		WithPanel(tokenMinimum()).WithPanel(queueLimit()).WithPanel(tunerDecisions()).
		WithPanel(objective()).WithPanel(ttft()).WithPanel(endToEnd()).
		WithPanel(requests()).WithPanel(tokens()).WithPanel(promptSources()).
		WithPanel(restoreLatency()).WithPanel(waiting()).WithPanel(decisions())
}

func ready() *stat.PanelBuilder {
	return single("Ready",
		"1: the pool is taken over, its steps succeed, its engines and the plugin are seen. 0: kvtuner changes nothing until that is so; the parameters last published stay in force.",
		plain, from("red", 1, "green"), query{`min by (pool) (kvtuner_ready{TUNER})`, "{{pool}}"})
}

func trial() *stat.PanelBuilder {
	return single("Trial under way",
		"1 while a candidate is tried beside the parameters in force; it ends by itself, at the latest when its document expires.",
		plain, from("green", 1, "blue"), query{`max by (pool) (kvtuner_trial_active{TUNER})`, "{{pool}}"})
}

func movesToday() *stat.PanelBuilder {
	return single("Moves in 24 h",
		"How often the parameters in force were changed, rollbacks included. A few a day is usual while the load changes; many an hour is thrash.",
		plain, from("green", 24, "orange"), query{`sum by (pool) (increase(kvtuner_decisions_total{TUNER,kind=~"move|recover|rollback"}[24h]))`, "{{pool}}"})
}

func restoreShare() *stat.PanelBuilder {
	return single("Requests that may restore",
		"Share of requests that the plugin lets restore KV cache from outside the GPU. Not all have anything to restore.",
		share, neutral(), query{`sum by (pool) (rate(selective_kv_decisions_total{PLUGIN,action="load"}[$__rate_interval])) / sum by (pool) (rate(selective_kv_decisions_total{PLUGIN}[$__rate_interval]))`, "{{pool}}"})
}

func tokenMinimum() *timeseries.PanelBuilder {
	return steps(lines("Minimum of reusable tokens",
		"A request restores only with at least this many reusable tokens. In force is what the plugin says, published what the tuner wrote: lines apart mean that the document does not arrive. Bounds are the tuner's; whether the plugin's own hold the value back says Where parameters come from, on Tuner health. A line that ends means never restore (infinite).",
		plain,
		query{`max by (pool, arm) (selective_kv_parameter{PLUGIN,name="minExternalReusableTokens"})`, "{{pool}} {{arm}} in force"},
		query{`max by (pool, arm) (kvtuner_parameter{TUNER,name="minExternalReusableTokens"})`, "{{pool}} {{arm}} published"},
		query{`max by (pool, bound) (kvtuner_bound{TUNER,parameter="minExternalReusableTokens"})`, "{{pool}} {{bound}} bound"})).
		ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionSymlog).Log(2).LinearThreshold(1))
}

func queueLimit() *timeseries.PanelBuilder {
	return steps(lines("Limit of waiting requests",
		"While an engine's smoothed queue is at this limit or above, its requests recompute instead of restoring; the gate reopens at half of it. 0 is no gate; an upper bound that allows that is no line.",
		plain,
		query{`max by (pool, arm) (selective_kv_parameter{PLUGIN,name="maxWaitingRequests"})`, "{{pool}} {{arm}} in force"},
		query{`max by (pool, arm) (kvtuner_parameter{TUNER,name="maxWaitingRequests"})`, "{{pool}} {{arm}} published"},
		query{`max by (pool, bound) (kvtuner_bound{TUNER,parameter="maxWaitingRequests"} > 0)`, "{{pool}} {{bound}} bound"}))
}

func tunerDecisions() *timeseries.PanelBuilder {
	return stacked(lines("Decisions of the tuner",
		"Decisions recorded in the last ten minutes, by kind: trial starts one, move or keep ends it, abort is the guard or missing data, shed stops restores at once in a collapse, rollback returns to the last good parameters, hold suspends tuning.",
		plain, query{`sum by (kind) (increase(kvtuner_decisions_total{TUNER}[10m])) > 0`, "{{kind}}"})).
		DrawStyle(common.GraphDrawStyleBars)
}

func objective() *timeseries.PanelBuilder {
	return lines("Objective",
		"What kvtuner minimises: seconds a request costs, of the last usable sample; lower is better. During a trial the sample contains the candidate. Compare whole stretches of both colours, not single points: the tuner judges many samples together. Gaps are samples that could not be used.",
		seconds,
		query{`kvtuner_cost_seconds{TUNER} unless on (pool) (kvtuner_trial_active == 1)`, "{{pool}} incumbent"},
		query{`kvtuner_cost_seconds{TUNER} and on (pool) (kvtuner_trial_active == 1)`, "{{pool}} trial"})
}

func ttft() *timeseries.PanelBuilder {
	return lines("Time to first token",
		"From arrival to the first token, at the engines. Judge by the mean: buckets are too coarse for a percentile to show a change of a tenth.",
		seconds, latency("vllm:time_to_first_token_seconds")...)
}

func endToEnd() *timeseries.PanelBuilder {
	return lines("End-to-end latency",
		"From arrival to the last token. Buckets begin at 0.3 s: of faster requests only the mean says anything.",
		seconds, latency("vllm:e2e_request_latency_seconds")...)
}

// latency is a classic histogram's mean and percentiles.
func latency(name string) []query {
	quantile := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le) (rate(` + name + `_bucket{ENGINE}[$__rate_interval])))`
	}
	return []query{
		{mean(name, "ENGINE"), "mean"},
		{quantile("0.5"), "p50"},
		{quantile("0.95"), "p95"},
		{quantile("0.99"), "p99"},
	}
}

func mean(name, selector string) string {
	return `sum(rate(` + name + `_sum{` + selector + `}[$__rate_interval])) / sum(rate(` + name + `_count{` + selector + `}[$__rate_interval]))`
}

func requests() *timeseries.PanelBuilder {
	return stacked(lines("Requests finished",
		"Requests a second by how they ended. Errors or aborts that grow after a move are a reason to revert it.",
		perSecond, query{`sum by (finished_reason) (rate(vllm:request_success_total{ENGINE}[$__rate_interval]))`, "{{finished_reason}}"}))
}

func tokens() *timeseries.PanelBuilder {
	return lines("Token throughput",
		"Tokens a second of all engines. Prompt tokens include those that were cached.",
		plain,
		query{`sum(rate(vllm:prompt_tokens_total{ENGINE}[$__rate_interval]))`, "prompt tokens/s"},
		query{`sum(rate(vllm:generation_tokens_total{ENGINE}[$__rate_interval]))`, "generated tokens/s"})
}

func promptSources() *timeseries.PanelBuilder {
	return stacked(lines("Where prompt tokens came from",
		"local_compute was computed, local_cache_hit was on the GPU, external_kv_transfer was restored from CPU memory or NVMe. A higher minimum turns restored tokens into computed ones.",
		plain, query{`sum by (source) (rate(vllm:prompt_tokens_by_source_total{ENGINE}[$__rate_interval]))`, "{{source}} tokens/s"}))
}

func restoreLatency() *timeseries.PanelBuilder {
	return lines("Restore latency",
		"Deferred lookup: mean time a request waits for its cache to reach CPU memory, the queue of the storage included; it grows first when storage is slow. Copy: mean time of one rank's copy from CPU memory to the GPU. Empty while nothing is restored.",
		seconds,
		query{mean("vllm:kv_offload_lookup_async_delay_seconds", "ENGINE"), "deferred lookup"},
		query{`sum(rate(vllm:kv_offload_load_time_total{ENGINE}[$__rate_interval])) / sum(rate(vllm:kv_offload_load_size_count{ENGINE}[$__rate_interval]))`, "copy to GPU"})
}

func waiting() *timeseries.PanelBuilder {
	return stacked(lines("Requests waiting",
		"capacity waits for room on the GPU, deferred mostly for a restore. Deferred that grows under constant load says that restoring is slower than recomputing would be.",
		plain, query{`sum by (reason) (vllm:num_requests_waiting_by_reason{ENGINE})`, "{{reason}}"}))
}

func decisions() *timeseries.PanelBuilder {
	return stacked(lines("Decisions on requests",
		"What the plugin decided and why: below_minimum, queue_gate and restore_dearer recompute, reusable restores, no_evidence leaves the request alone, probe_ lets a request restore against the rule to learn its cost.",
		perSecond, query{`sum by (action, reason) (rate(selective_kv_decisions_total{PLUGIN}[$__rate_interval])) > 0`, "{{action}}: {{reason}}"}))
}
