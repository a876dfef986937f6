package tuner

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Metrics says under which names a set-up exposes what the tuner reads.
type Metrics struct {
	// Preset is a set of names; Presets lists them. Empty is vllm.
	Preset string `mapstructure:"preset"`
	// Names override the preset's, as "signal=metric" such as
	// "waiting=my:queue_length"; SignalNames lists the signals. A histogram's name
	// has no _sum, _count or _bucket.
	Names []string `mapstructure:"names"`
}

// Preset describes one set-up.
type Preset struct {
	Name string
	// About says whose set-up it is, and what it lacks.
	About string
	// EndpointLabels are the labels that may tell engines apart, the usual one
	// first; NamespaceLabels and ModelLabels likewise for what selects a pool.
	EndpointLabels, NamespaceLabels, ModelLabels []string
	// ObserveOnly says why mode enforce is refused; empty allows it.
	ObserveOnly string

	prefixes []string // alternatives
	renamed  map[string][]alternative
}

// Presets returns the known set-ups, the default first.
func Presets() []Preset { return slices.Clone(presets) }

const defaultPreset = "vllm"

var (
	podLabels       = []string{"pod", "instance", "exported_pod", "exported_instance", "k8s_pod_name", "service_instance_id"}
	exportedFirst   = []string{"exported_pod", "k8s_pod_name", "exported_instance", "service_instance_id", "pod", "instance"}
	namespaceLabels = []string{"namespace", "exported_namespace", "k8s_namespace_name"}
	modelLabels     = []string{"model_name"}
)

var presets = []Preset{
	{
		Name: defaultPreset, About: "vLLM's own names, scraped directly.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: modelLabels,
		prefixes: []string{"vllm:"},
	},
	{
		Name: "kserve", About: "KServe and Open Data Hub, which rename vllm: to kserve_vllm:. Where both are scraped, each request is there twice: choose one.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: modelLabels,
		prefixes: []string{"kserve_vllm:"},
	},
	{
		Name: "otel", About: "Exported again by an OpenTelemetry collector, which turns colons into underscores and keeps the original labels as exported_... or k8s_....",
		EndpointLabels: exportedFirst, NamespaceLabels: []string{"exported_namespace", "k8s_namespace_name", "namespace"}, ModelLabels: modelLabels,
		prefixes: []string{"vllm_", "kserve_vllm_"},
	},
	{
		Name: "llm-d", About: "llm-d's PodMonitor: vLLM's own names. The Endpoint Picker's llm_d_epp_ series are not used: its TTFT of a request that does not stream is the whole latency, and it knows nothing of restores.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: modelLabels,
		prefixes: []string{"vllm:"},
	},
	{
		Name: "gie", About: "gateway-api-inference-extension: vLLM's own names. The Endpoint Picker's inference_ series are not used: each replica repeats the queues of all engines, and none knows of restores.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: modelLabels,
		prefixes: []string{"vllm:"},
	},
	{
		Name: "lmcache", About: "vLLM with LMCache's connector: restored tokens and copy times are LMCache's. It has no lookup delay, so objective.restore weighs the copy alone. Whether the connector obeys max_load_tokens is for the effect check to find out.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: modelLabels,
		prefixes: []string{"vllm:"},
		renamed: map[string][]alternative{
			"external":    {{name: "lmcache:num_hit_tokens_total"}},
			"loadTime":    {{name: "lmcache:time_to_retrieve_sum"}},
			"lookupDelay": {},
		},
	},
	{
		Name: "sglang", About: "SGLang with hierarchical cache. It does not say which requests failed, and has no lookup delay.",
		EndpointLabels: podLabels, NamespaceLabels: namespaceLabels, ModelLabels: []string{"model_name", "name"},
		ObserveOnly: "SGLang has no max_load_tokens in kv_transfer_params: there is nothing to turn",
		prefixes:    []string{"sglang:"},
		renamed: map[string][]alternative{
			"running":     {{name: "sglang:num_running_reqs"}},
			"waiting":     {{name: "sglang:num_queue_reqs"}},
			"external":    {{name: "sglang:load_back_tokens_total"}},
			"loadTime":    {{name: "sglang:load_back_duration_seconds_sum"}, {name: "sglang:load_back_duration_seconds_total"}},
			"finished":    {},
			"lookupDelay": {},
		},
	},
}

// signal is one thing a sample is made of.
type signal struct {
	name string
	// series are its names in a sample, as vLLM has them: for a histogram several.
	series []string
	// others are where engines of other versions have the same, by preference.
	others []alternative
	// required tells that a sample without it is unknown.
	required bool
}

// alternative is another name of a series, without the preset's prefix in a
// signal's list. Of its series only those with the label's value count.
type alternative struct{ name, label, value string }

const vllmPrefix = "vllm:"

// signals in the order users meet them. Of older engines: tokens
// restored are the hits of the external prefix cache, copies those of the
// deprecated family with a direction.
var signals = []signal{
	{name: "e2e", series: []string{seriesE2ESum, seriesE2ECount}, required: true},
	{name: "ttft", series: []string{seriesTTFTSum, seriesTTFTCount, seriesTTFTBucket}, required: true},
	{name: "running", series: []string{seriesRunning}, required: true},
	{name: "waiting", series: []string{seriesWaiting}, required: true},
	{name: "generated", series: []string{seriesGenerated}, required: true},
	{name: "prompt", series: []string{seriesPromptTokens}, required: true},
	{name: "external", series: []string{seriesBySource}, others: []alternative{{name: "external_prefix_cache_hits_total"}}},
	{name: "finished", series: []string{seriesFinished}},
	{name: "lookupDelay", series: []string{seriesLookupDelay}},
	{name: "loadTime", series: []string{seriesLoadTime}, others: []alternative{
		{name: "kv_offload_total_time_total", label: "transfer_type", value: "CPU_to_GPU"},
	}},
}

// SignalNames are what metrics.names may override.
func SignalNames() []string {
	names := make([]string, len(signals))
	for i, s := range signals {
		names[i] = s.name
	}
	return names
}

// RequiredSignals are those without which a sample is unknown.
func RequiredSignals() []string {
	var names []string
	for _, s := range signals {
		if s.required {
			names = append(names, s.name)
		}
	}
	return names
}

// PresetByName finds a preset; the empty name is the default's.
func PresetByName(name string) (Preset, error) {
	if name == "" {
		name = defaultPreset
	}
	var known []string
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Preset{}, fmt.Errorf("metrics.preset: %q is not allowed; use %s", name, strings.Join(known, ", "))
}

var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

func (m Metrics) validate(mode Mode) error {
	p, err := PresetByName(m.Preset)
	errs := []error{err}
	if mode != Observe && p.ObserveOnly != "" {
		errs = append(errs, fmt.Errorf("metrics.preset: %q is not allowed with mode %q: %s; use mode %q", p.Name, mode, p.ObserveOnly, Observe))
	}
	for i, line := range m.Names {
		name, metric, _ := strings.Cut(line, "=")
		switch {
		case !slices.Contains(SignalNames(), strings.TrimSpace(name)):
			errs = append(errs, fmt.Errorf("metrics.names[%d]: %q is no signal; write \"signal=metric\" with one of %s", i, line, strings.Join(SignalNames(), ", ")))
		case !metricName.MatchString(strings.TrimSpace(metric)):
			errs = append(errs, fmt.Errorf("metrics.names[%d]: %q is not the name of a metric", i, metric))
		}
	}
	return errors.Join(errs...)
}

func (m Metrics) overrides() map[string]string {
	out := map[string]string{}
	for _, line := range m.Names {
		name, metric, _ := strings.Cut(line, "=")
		out[strings.TrimSpace(name)] = strings.TrimSpace(metric)
	}
	return out
}
