package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const tag = "kvtuner"

// All builds the dashboards: Overview, Crossover, Fleet, Tuner health. Each
// uid, such as "kvtuner-overview", is the name of its file here.
func All() ([]dashboard.Dashboard, error) {
	builders := []*dashboard.DashboardBuilder{overview(), crossover(), fleet(), health()}
	out := make([]dashboard.Dashboard, 0, len(builders))
	for _, b := range builders {
		d, err := b.Build()
		if err != nil {
			return nil, fmt.Errorf("build a dashboard: %w", err)
		}
		number(d.Panels)
		out = append(out, d)
	}
	return out, nil
}

// Encode is a dashboard as Grafana imports it.
func Encode(d dashboard.Dashboard) ([]byte, error) {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard %q: %w", *d.Title, err)
	}
	return append(text, '\n'), nil
}

// number gives every panel an id of its own, in order: links to a panel need one.
func number(panels []dashboard.PanelOrRowPanel) {
	for i, p := range panels {
		id := uint32(i + 1)
		if p.RowPanel != nil {
			p.RowPanel.Id = id
			continue
		}
		p.Panel.Id = &id
	}
}

// page is what all dashboards have in common: variables, links, refresh, and the
// tuner's decisions as annotations.
func page(uid, title, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder("kvtuner / "+title).
		Uid("kvtuner-"+uid).
		Description(description).
		Tags([]string{tag, "vllm", "kv-cache"}).
		Refresh("30s").
		Time("now-3h", "now").
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Readonly().
		Variables(variables()).
		Link(others()).
		Annotations(annotations())
}

func others() *dashboard.DashboardLinkBuilder {
	return dashboard.NewDashboardLinkBuilder("kvtuner dashboards").
		Type(dashboard.DashboardLinkTypeDashboards).
		Tags([]string{tag}).
		IncludeVars(true).
		KeepTime(true)
}

var datasource = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

func variables() []cog.Builder[dashboard.VariableModel] {
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		choice("namespace", "Namespace", `label_values(vllm:num_requests_running, namespace)`),
		choice("pool", "Pool", `label_values(selective_kv_revision{namespace=~"$namespace"}, pool)`),
		choice("model_name", "Model", `label_values(vllm:num_requests_running{namespace=~"$namespace"}, model_name)`),
	}
}

// choice is a variable of which several values may be selected, all at first.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Query(dashboard.StringOrMap{String: &query}).
		Datasource(datasource).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		AllValue(".+").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

func annotations() []cog.Builder[dashboard.AnnotationQuery] {
	return []cog.Builder[dashboard.AnnotationQuery]{
		event("Moves", "blue", "move|recover|drift"),
		event("Rollbacks and aborts", "orange", "rollback|abort|revert"),
		event("Restores stopped", "red", "shed"),
		event("Tuning paused or resumed", "purple", "hold|pause|resume"),
	}
}

// event marks when a decision of these kinds was recorded. The counter begins
// again when the tuner restarts, so any change of it counts, not an increase alone.
func event(name, color, kinds string) *dashboard.AnnotationQueryBuilder {
	of := fmt.Sprintf(`kvtuner_decisions_total{TUNER,kind=~%q}`, kinds)
	expr := expand(fmt.Sprintf(`(%[1]s > 0) unless (%[1]s == %[1]s offset 1m)`, of))
	return dashboard.NewAnnotationQueryBuilder().
		Name(name).
		Datasource(datasource).
		Enable(true).
		IconColor(color).
		Expr(expr).
		Step("1m").
		TitleFormat("{{pool}}: {{kind}}").
		TextFormat("kvtuner history says why").
		TagKeys("pool,kind")
}
