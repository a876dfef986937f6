package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Detection is what a Prometheus turned out to hold.
type Detection struct {
	At     time.Time `json:"at"`
	Preset string    `json:"preset"`
	// Also are other presets whose series are there.
	Also []string `json:"also,omitempty"`
	// EndpointLabel tells the engines apart.
	EndpointLabel string        `json:"endpointLabel"`
	Scrape        time.Duration `json:"-"`
	Pools         []Detected    `json:"pools"`
}

// Detected is one namespace and model, a candidate for a pool.
type Detected struct {
	Name      string `json:"name"`
	Selector  string `json:"selector"`
	Endpoints int    `json:"endpoints"`
	// Plugin tells that the plugin exports series under the pool's name.
	Plugin bool `json:"plugin"`
	// Initial is what its replicas have in force; nil if they do not agree, or do
	// not show it.
	Initial *store.Params `json:"initial,omitempty"`
}

// Detect finds the preset, the labels and the pools. An error says what to do.
func Detect(ctx context.Context, o Options) (Detection, error) {
	p := &probe{Options: o, at: o.At, answers: map[string]answer{}}
	askPrometheus(ctx, p)
	if p.down != "" {
		return Detection{}, fmt.Errorf("%s; %s: %s", p.down, p.found[0].Setting, p.found[0].Fix)
	}
	d := Detection{At: p.at.UTC()}
	if err := p.detectPreset(ctx, &d); err != nil {
		return Detection{}, err
	}
	p.Settings = tuner.DefaultSettings()
	p.Settings.Metrics.Preset = d.Preset
	rows, ok := p.ask(ctx, "{%s}", p.on("running"))
	points, _ := p.series(ctx, fmt.Sprintf("{%s}[10m]", p.on("running")))
	plugins, alsoOK := p.ask(ctx, "count by (pool, namespace) (selective_kv_revision)")
	initial := p.inForce(ctx)
	if !ok || !alsoOK || p.unasked != "" {
		return Detection{}, fmt.Errorf("looking for pools: %s", p.unasked)
	}
	d.EndpointLabel = cmp.Or(distinct(rows, presetOf(p.Settings).EndpointLabels), p.Settings.EndpointLabel)
	d.Scrape = interval(points)
	d.Pools = pools(rows, presetOf(p.Settings), d.EndpointLabel, plugins, initial)
	return d, nil
}

// detectPreset takes the names that are there; of those that share them, the
// one whose Endpoint Picker or connector is there, too.
func (p *probe) detectPreset(ctx context.Context, d *Detection) error {
	found := map[string]bool{}
	for _, preset := range tuner.Presets() {
		s := tuner.DefaultSettings()
		s.Metrics.Preset = preset.Name
		n, ok := p.number(ctx, "count({%s})", s.EngineMatchers("running", ""))
		if !ok {
			return fmt.Errorf("looking for engines: %s", p.unasked)
		}
		found[preset.Name] = n > 0
	}
	for name, series := range map[string]string{
		"llm-d": `llm_d_epp_.+`, "gie": `inference_(pool|extension)_.+`, "lmcache": `lmcache:num_hit_tokens_total`,
	} {
		n, ok := p.number(ctx, "count({__name__=~%q})", series)
		if !ok {
			return fmt.Errorf("looking for Endpoint Pickers: %s", p.unasked)
		}
		found[name] = found[name] && n > 0
	}
	for _, name := range []string{"lmcache", "llm-d", "gie", "vllm", "kserve", "otel", "sglang"} {
		switch {
		case found[name] && d.Preset == "":
			d.Preset = name
		case found[name] && (name != "vllm" && name != "llm-d" && name != "gie"): // not the same series again
			d.Also = append(d.Also, name)
		}
	}
	if d.Preset == "" {
		return fmt.Errorf("this Prometheus has no engine's series under the names of any preset: have it scrape the engines, or name them in metrics.names")
	}
	return nil
}

// pools groups engines by namespace and model.
func pools(rows model.Vector, p tuner.Preset, endpointLabel string, plugins model.Vector, initial map[pluginPool]*store.Params) []Detected {
	type group struct{ namespace, model model.LabelValue }
	namespaceLabel, modelLabel := present(rows, p.NamespaceLabels), present(rows, p.ModelLabels)
	engines := map[group]map[model.LabelValue]bool{}
	for _, row := range rows {
		g := group{row.Metric[namespaceLabel], row.Metric[modelLabel]}
		if engines[g] == nil {
			engines[g] = map[model.LabelValue]bool{}
		}
		engines[g][row.Metric[model.LabelName(endpointLabel)]] = true
	}
	var out []Detected
	for g, members := range engines {
		d := Detected{Endpoints: len(members), Selector: matchers(namespaceLabel, g.namespace, modelLabel, g.model)}
		at, ok := onlyPool(plugins, g.namespace)
		d.Plugin, d.Initial, d.Name = ok, initial[at], string(at.pool)
		if !ok {
			d.Name = modelPool(g.model)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Detected) int { return strings.Compare(a.Selector, b.Selector) })
	return out
}

// present is the first of the labels that any series has.
func present(rows model.Vector, labels []string) model.LabelName {
	for _, l := range labels {
		for _, row := range rows {
			if row.Metric[model.LabelName(l)] != "" {
				return model.LabelName(l)
			}
		}
	}
	return ""
}

func matchers(pairs ...any) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		if name, value := pairs[i].(model.LabelName), pairs[i+1].(model.LabelValue); name != "" && value != "" {
			out = append(out, fmt.Sprintf("%s=%q", name, value))
		}
	}
	return strings.Join(out, ",")
}

// pluginPool is a pool as the plugin's series name it.
type pluginPool struct{ namespace, pool model.LabelValue }

func poolOf(m model.Metric) pluginPool { return pluginPool{m["namespace"], m["pool"]} }

// inForce are the parameters that the replicas of each pool have in force, of pools
// whose replicas agree.
func (p *probe) inForce(ctx context.Context) map[pluginPool]*store.Params {
	const shown = `by (pool, namespace, name) (selective_kv_parameter{arm="baseline"})`
	least, ok := p.ask(ctx, "min "+shown)
	most, alsoOK := p.ask(ctx, "max "+shown)
	if !ok || !alsoOK {
		return nil
	}
	low, high := gauges(least), gauges(most)
	out := map[pluginPool]*store.Params{}
	for at := range low {
		if params, ok := tuner.ParamsShown(low[at]); ok && maps.Equal(low[at], high[at]) {
			out[at] = &params
		}
	}
	return out
}

// gauges of each pool, by name.
func gauges(rows model.Vector) map[pluginPool]map[string]float64 {
	out := map[pluginPool]map[string]float64{}
	for _, row := range rows {
		at := poolOf(row.Metric)
		if out[at] == nil {
			out[at] = map[string]float64{}
		}
		out[at][string(row.Metric["name"])] = float64(row.Value)
	}
	return out
}

// onlyPool is the plugin's pool in the namespace, if there is one and only one.
func onlyPool(plugins model.Vector, namespace model.LabelValue) (at pluginPool, ok bool) {
	found := 0
	for _, row := range plugins {
		if p := poolOf(row.Metric); namespace == "" || p.namespace == namespace {
			at, found = p, found+1
		}
	}
	if found != 1 {
		return pluginPool{}, false
	}
	return at, true
}

// modelPool makes a pool's name of the model's.
func modelPool(modelName model.LabelValue) string {
	last := string(modelName[strings.LastIndex(string(modelName), "/")+1:])
	clean := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, last), "-.")
	return cmp.Or(clean, "default")
}
