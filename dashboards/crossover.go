package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func crossover() *dashboard.DashboardBuilder {
	return page("crossover", "Crossover", "From how many reusable tokens on restoring is cheaper than recomputing, how many tokens requests have, and where the threshold cuts.").
		WithPanel(costByTokens()).WithPanel(requestsByTokens()).
		WithPanel(distribution()).WithPanel(cut()).
		WithPanel(quantiles()).WithPanel(advantage())
}

func costByTokens() *barchart.PanelBuilder {
	return sideBySide("Cost of restoring and of recomputing",
		"Mean time to first token of the requests shown, by the power of two their reusable tokens begin at. Where the two change places is the crossover: the minimum in force should be about there. Requests below the minimum restore only as probes, so few may stand behind a bar; requests with enough tokens that met a closed gate count as recomputed.",
		seconds, costOf("load", "$__range"), costOf("recompute", "$__range"))
}

func requestsByTokens() *barchart.PanelBuilder {
	started := func(action string) string {
		return asNumber(`sum by (reusable) (increase(selective_kv_cost_started_total{PLUGIN,action="` + action + `"}[$__range]))`)
	}
	return sideBySide("Streamed requests by reusable tokens",
		"How many requests stand behind each bar to the left: by the power of two their reusable tokens begin at, 65536 and more in the last.",
		plain, started("load"), started("recompute"))
}

// sideBySide compares the two actions by reusable tokens.
func sideBySide(title, description, unit, restore, recompute string) *barchart.PanelBuilder {
	return barchart.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(datasource).
		Unit(unit).
		AxisSoftMin(0).
		XField("reusable tokens").
		Orientation(common.VizOrientationAuto).
		ShowValue(common.VisibilityModeAuto).
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone)).
		Span(12).
		Height(10).
		Targets(targets([]query{{restore, "restore"}, {recompute, "recompute"}}, tableAtEnd)).
		Transformations(byTokens())
}

func tableAtEnd(t *prometheus.DataqueryBuilder) {
	t.Instant().Format(prometheus.PromQueryFormatTable)
}

// costOf is the mean TTFT of one action, by lower end of the bucket of reusable
// tokens: the last bucket's "+" is cut so that labels sort as numbers.
func costOf(action, window string) string {
	sum := func(name string) string {
		return `sum by (reusable) (increase(selective_kv_cost_` + name + `{PLUGIN,action="` + action + `"}[` + window + `]))`
	}
	return asNumber(sum("ttft_seconds_total") + ` / (` + sum("finished_total") + ` > 0)`)
}

func asNumber(expr string) string {
	return `label_replace(` + expr + `, "reusable", "$1", "reusable", "([0-9]+)[+]?")`
}

// byTokens makes two tables one, in order of tokens.
func byTokens() []dashboard.DataTransformerConfig {
	return []dashboard.DataTransformerConfig{
		{Id: "joinByField", Options: map[string]any{"byField": "reusable", "mode": "outer"}},
		{Id: "convertFieldType", Options: map[string]any{"conversions": []any{
			map[string]any{"targetField": "reusable", "destinationType": "number"}}}},
		{Id: "sortBy", Options: map[string]any{"sort": []any{map[string]any{"field": "reusable"}}}},
		{Id: "convertFieldType", Options: map[string]any{"conversions": []any{
			map[string]any{"targetField": "reusable", "destinationType": "string"}}}},
		{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time 1": true, "Time 2": true},
			"renameByName":  map[string]any{"reusable": "reusable tokens", "Value #A": "restore", "Value #B": "recompute"}}},
	}
}

func distribution() *bargauge.PanelBuilder {
	return bars("Distribution of reusable tokens",
		"All requests with evidence, by reusable tokens up to each bound. A threshold between two heaps of requests is robust; one inside a heap is sensitive. Needs the classic buckets: a Prometheus that scrapes native histograms must keep them (always_scrape_classic_histograms).",
		plain, query{`sum by (le) (increase(selective_kv_external_reusable_tokens_bucket{PLUGIN}[$__range]))`, "{{le}}"})
}

func cut() *timeseries.PanelBuilder {
	return stacked(lines("Where the threshold cuts",
		"Share of the requests with evidence on either side of the minimum: below_minimum is cut off, reusable restores, queue_gate has enough tokens but its engine's queue is long, restore_dearer computes because restoring would cost more, probe_ restores against the rule.",
		share, query{`sum by (reason) (rate(` + judged + `[$__rate_interval])) / ignoring (reason) group_left () sum(rate(` + judged + `[$__rate_interval]))`, "{{reason}}"})).
		Max(1).Span(12)
}

const judged = `selective_kv_decisions_total{PLUGIN,reason=~"reusable|below_minimum|queue_gate|restore_dearer|probe_.*"}`

func quantiles() *timeseries.PanelBuilder {
	return lines("Reusable tokens and the minimum",
		"Percentiles of requests' reusable tokens, and the minimum in force. Where the minimum's line crosses that of p50, half of the requests are cut off. A minimum that is not drawn is infinite: nothing is restored.",
		plain,
		query{tokenQuantile("0.1"), "p10"},
		query{tokenQuantile("0.5"), "p50"},
		query{tokenQuantile("0.9"), "p90"},
		query{`max by (pool) (selective_kv_parameter{PLUGIN,arm="baseline",name="minExternalReusableTokens"})`, "minimum in force, {{pool}}"}).
		Span(12)
}

// tokenQuantile reads the native histogram, or else the classic one.
func tokenQuantile(q string) string {
	of := func(by, suffix string) string {
		return `histogram_quantile(` + q + `, sum` + by + ` (rate(selective_kv_external_reusable_tokens` + suffix + `{PLUGIN}[$__rate_interval])))`
	}
	return of("", "") + ` or ` + of(" by (le)", "_bucket")
}

func advantage() *timeseries.PanelBuilder {
	return lines("Advantage of restoring",
		"Mean time to first token of recomputed requests less that of restored ones, over half an hour, by reusable tokens. Above 0 restoring is cheaper. A bucket appears only while it has requests of both kinds.",
		seconds, query{costOf("recompute", "30m") + ` - on (reusable) ` + costOf("load", "30m"), "{{reusable}} tokens"}).
		Span(12)
}
