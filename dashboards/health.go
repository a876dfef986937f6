package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func health() *dashboard.DashboardBuilder {
	return page("health", "Tuner health", "Whether the loop turns: metrics in, decisions, documents out, plugin in step.").
		WithPanel(ready()).WithPanel(stepAge()).WithPanel(publishFailures()).WithPanel(skew()).
		WithPanel(tunerSteps()).WithPanel(samples()).WithPanel(revisions()).
		WithPanel(source()).WithPanel(documentAge()).WithPanel(refusedDocuments()).
		WithPanel(evidence()).WithPanel(refusedSamples()).WithPanel(refusedBodies())
}

func stepAge() *stat.PanelBuilder {
	return single("Since the last good step",
		"Time since a turn of the loop ended without an error. It saws between 0 and the length of a sample; what grows beyond that is a tuner that hangs or whose steps fail. Its log says why.",
		seconds, from("green", 900, "red"), query{`time() - max by (pool) (kvtuner_last_step_timestamp_seconds{TUNER})`, "{{pool}}"})
}

func publishFailures() *stat.PanelBuilder {
	return single("Publish failures in 1 h",
		"Writes of the parameter document that failed. The plugin keeps the last document; a trial in it expires. Look at the store's permissions and the tuner's log.",
		plain, from("green", 1, "red"), query{`sum by (pool) (increase(kvtuner_publish_failures_total{TUNER}[1h]))`, "{{pool}}"})
}

func skew() *stat.PanelBuilder {
	return single("Revision skew",
		"Difference between the newest and the oldest revision in force among EPP replicas. More than 0 for longer than a scrape means that some replica does not see the store.",
		plain, from("green", 1, "orange"), query{`max by (namespace, pool) (selective_kv_revision{PLUGIN}) - min by (namespace, pool) (selective_kv_revision{PLUGIN})`, "{{namespace}} {{pool}}"})
}

func tunerSteps() *timeseries.PanelBuilder {
	return lines("Turns of the loop",
		"Steps a minute by outcome. Errors change nothing and are tried again at the next step.",
		plain, query{`60 * sum by (outcome) (rate(kvtuner_steps_total{TUNER}[5m]))`, "{{outcome}} a minute"})
}

func samples() *timeseries.PanelBuilder {
	return stacked(lines("Samples by state",
		"ok samples can be judged, idle ones have too little traffic, unknown ones lack data: engines not scraped, series missing, clocks apart. Only ok samples move anything.",
		share, query{`sum by (state) (rate(kvtuner_samples_total{TUNER}[10m])) / ignoring (state) group_left () sum(rate(kvtuner_samples_total{TUNER}[10m]))`, "{{state}}"})).Max(1)
}

func revisions() *timeseries.PanelBuilder {
	return steps(lines("Revision published and in force",
		"The tuner's revision, and that of each EPP replica; replicas follow within moments. 0 is a replica on its static configuration.",
		plain,
		query{`max by (pool) (kvtuner_revision{TUNER})`, "published, {{pool}}"},
		query{`max by (instance, pool) (selective_kv_revision{PLUGIN})`, "{{instance}}"}))
}

func source() *timeseries.PanelBuilder {
	return steps(lines("Where parameters come from",
		"Replicas by source: store is usual, config means that no document was seen yet, expired that the document is too old and its trial was dropped. Held back counts the replicas whose own bounds are narrower than what was published.",
		plain,
		query{`sum by (source) (selective_kv_source{PLUGIN})`, "{{source}}"},
		query{`sum by (arm) (selective_kv_clamped{PLUGIN})`, "{{arm}} held back"}))
}

func documentAge() *timeseries.PanelBuilder {
	return lines("Age of the document in force",
		"Time since the document was written. It grows for as long as nothing changes, which is no fault by itself.",
		seconds, query{`max by (instance, pool) (selective_kv_document_age_seconds{PLUGIN})`, "{{instance}}"})
}

func refusedDocuments() *timeseries.PanelBuilder {
	return refused("Documents refused",
		"Documents that a replica could not use: invalid, of another pool, of an older revision, or not readable (watch). The parameters before stay in force.",
		"selective_kv_documents_refused_total")
}

func evidence() *timeseries.PanelBuilder {
	return lines("Requests without evidence",
		"Share of requests of which the plugin knows no, or impossible, cached tokens: it leaves them alone, so the threshold has no hold on them.",
		share, query{`sum by (namespace, pool) (rate(selective_kv_decisions_total{PLUGIN,reason=~"no_evidence|invalid_evidence"}[$__rate_interval])) / sum by (namespace, pool) (rate(selective_kv_decisions_total{PLUGIN}[$__rate_interval]))`, "{{namespace}} {{pool}}"}).Max(1)
}

func refusedSamples() *timeseries.PanelBuilder {
	return refused("Observations refused",
		"Queue lengths, times and token counts that cannot be, by reason. A few in the future are clocks apart.",
		"selective_kv_samples_refused_total")
}

func refusedBodies() *timeseries.PanelBuilder {
	return refused("Bodies left as they are",
		"Requests whose body the plugin would not edit, by reason: they restore as the client said.",
		"selective_kv_bodies_refused_total")
}

// refused is a counter by reason.
func refused(title, description, name string) *timeseries.PanelBuilder {
	return lines(title, description, plain, query{`sum by (reason) (increase(` + name + `{PLUGIN}[10m]))`, "{{reason}} in 10 min"})
}
