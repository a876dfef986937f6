package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units, by Grafana's names.
const (
	seconds   = "s"
	share     = "percentunit"
	bytesRate = "Bps"
	perSecond = "reqps"
	plain     = "short"
)

// What the dashboards' variables select of each component's series.
var selectors = strings.NewReplacer(
	"ENGINE", `namespace=~"$namespace",model_name=~"$model_name"`,
	"PLUGIN", `namespace=~"$namespace",pool=~"$pool"`,
	"TUNER", `pool=~"$pool"`,
)

// expand puts the matchers of the variables in for ENGINE (vLLM's series),
// PLUGIN (selective_kv_) and TUNER (kvtuner_, whose namespace may be another).
func expand(expr string) string { return selectors.Replace(expr) }

// query is one expression of a panel and how its series are called.
type query struct{ expr, legend string }

// targets are a panel's queries, each finished as the panel needs it.
func targets(queries []query, finish func(*prometheus.DataqueryBuilder)) []cog.Builder[variants.Dataquery] {
	out := make([]cog.Builder[variants.Dataquery], len(queries))
	for i, q := range queries {
		t := prometheus.NewDataqueryBuilder().
			RefId(string(rune('A' + i))).
			Datasource(datasource).
			EditorMode(prometheus.QueryEditorModeCode).
			Expr(expand(q.expr)).
			LegendFormat(q.legend)
		finish(t)
		out[i] = t
	}
	return out
}

func overTime(t *prometheus.DataqueryBuilder) { t.Range() }

// bucketsAtEnd has Grafana sort cumulative buckets and take them apart.
func bucketsAtEnd(t *prometheus.DataqueryBuilder) {
	t.Instant().Format(prometheus.PromQueryFormatHeatmap)
}

// lines draws queries over time, from 0 up, a third of the page wide.
func lines(title, description, unit string, queries ...query) *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(datasource).
		Unit(unit).
		AxisSoftMin(0).
		LineWidth(1).
		FillOpacity(5).
		ShowPoints(common.VisibilityModeNever).
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Span(8).
		Height(8).
		Targets(targets(queries, overTime))
}

func legend() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().
		ShowLegend(true).
		DisplayMode(common.LegendDisplayModeList).
		Placement(common.LegendPlacementBottom)
}

// stacked fills the areas between lines that add up.
func stacked(p *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return p.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// steps draws values that hold until they change.
func steps(p *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return p.LineInterpolation(common.LineInterpolationStepAfter).LineWidth(2).FillOpacity(0)
}

// bars compares the buckets of a classic histogram, half the page wide.
func bars(title, description, unit string, q query) *bargauge.PanelBuilder {
	return bargauge.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(datasource).
		Unit(unit).
		Min(0).
		NoValue("no such requests").
		Orientation(common.VizOrientationVertical).
		DisplayMode(common.BarGaugeDisplayModeBasic).
		ReduceOptions(last()).
		Span(12).
		Height(8).
		Targets(targets([]query{q}, bucketsAtEnd))
}

func last() *common.ReduceDataOptionsBuilder {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Values(false)
}

// single shows one value, coloured from green by the thresholds.
func single(title, description, unit string, limits []dashboard.Threshold, q query) *stat.PanelBuilder {
	return stat.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(datasource).
		Unit(unit).
		NoValue("no data").
		GraphMode(common.BigValueGraphModeArea).
		ColorMode(common.BigValueColorModeValue).
		ReduceOptions(last()).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(limits)).
		Span(6).
		Height(4).
		Targets(targets([]query{q}, overTime))
}

// from colours values by the first limit below them; the first colour has none.
func from(first string, limit float64, second string) []dashboard.Threshold {
	return []dashboard.Threshold{{Color: first}, {Value: &limit, Color: second}}
}

// neutral is one colour whatever the value.
func neutral() []dashboard.Threshold { return []dashboard.Threshold{{Color: "blue"}} }

// states shows 0 and 1 over time as two words, the width of the page.
func states(title, description, zero, one string, q query) *statetimeline.PanelBuilder {
	return statetimeline.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(datasource).
		Mappings(words(zero, one)).
		ShowValue(common.VisibilityModeNever).
		MergeValues(true).
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle).Sort(common.SortOrderNone)).
		Span(24).
		Height(8).
		Targets(targets([]query{q}, overTime))
}

func words(zero, one string) []dashboard.ValueMapping {
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
		Type: dashboard.MappingTypeValueToText,
		Options: map[string]dashboard.ValueMappingResult{
			"0": {Text: &zero, Color: cog.ToPtr("green"), Index: cog.ToPtr[int32](0)},
			"1": {Text: &one, Color: cog.ToPtr("orange"), Index: cog.ToPtr[int32](1)},
		},
	}}}
}
