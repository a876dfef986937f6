package llmd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/attribute/prefix"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvtuner/kvtuner/plugin/adapter"
)

const (
	// PluginType is the type in an EndpointPickerConfig.
	PluginType = adapter.PluginType
	// DefaultProducer is the plugin whose evidence is read unless
	// prefixMatchInfoProducerName says otherwise: the one that knows tiers.
	DefaultProducer = "precise-prefix-cache-producer"
)

// Plugin is the policy as a plugin of the EPP. All methods may be called from
// any goroutine.
type Plugin struct {
	name     fwkplugin.TypedName
	evidence fwkplugin.DataKey
	adapter  *adapter.Adapter
}

var (
	_ requestcontrol.PreRequest              = (*Plugin)(nil)
	_ requestcontrol.ResponseHeaderProcessor = (*Plugin)(nil)
	_ requestcontrol.ResponseBodyProcessor   = (*Plugin)(nil)
	_ fwkplugin.ConsumerPlugin               = (*Plugin)(nil)
	_ datalayer.EndpointExtractor            = (*Plugin)(nil)
	_ datalayer.Registrant                   = (*Plugin)(nil)
)

// Options are what a Plugin is made of.
type Options struct {
	// Name of the instance; empty is PluginType.
	Name   string
	Config adapter.Config
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger hears of refused documents and of what makes decisions
	// ineffective; nil is silent.
	Logger *slog.Logger
	// Registerer takes the metrics; nil exports none.
	Registerer prometheus.Registerer
}

// New makes a plugin that lives until ctx ends. Errors name the setting, its
// value and what is allowed.
func New(ctx context.Context, o Options) (*Plugin, error) {
	if o.Name == "" {
		o.Name = PluginType
	}
	a, err := adapter.New(ctx, adapter.Options{Config: o.Config, Now: o.Now, Logger: o.Logger, Registerer: o.Registerer, OpenConfigMap: openConfigMap})
	if err != nil {
		return nil, err
	}
	return &Plugin{
		name:     fwkplugin.TypedName{Type: PluginType, Name: o.Name},
		evidence: evidenceKey(a.Config().PrefixMatchInfoProducerName),
		adapter:  a,
	}, nil
}

func evidenceKey(producer string) fwkplugin.DataKey {
	return prefix.PrefixCacheMatchInfoDataKey.
		WithNonEmptyProducerName(DefaultProducer).
		WithNonEmptyProducerName(producer)
}

// Register adds the plugin to those that a runner knows. It is experimental: the
// EPP refuses to start with it unless told --allow-experimental-plugins.
func Register() { fwkplugin.Register(PluginType, fwkplugin.StabilityAlpha, Factory) }

// Factory makes the plugin from the parameters of an EndpointPickerConfig. Its
// metrics go to the EPP's own registry, and it ends with the EPP.
func Factory(name string, parameters *json.Decoder, handle fwkplugin.Handle) (fwkplugin.Plugin, error) {
	config, err := read(parameters)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	if config.Pool == "" {
		config.Pool = adapter.PoolFlag()
	}
	o := Options{Name: name, Config: config}
	o.Logger = slog.New(logr.ToSlogHandler(log.FromContext(handle.Context()).WithName(name)))
	if recorder := handle.Metrics(); recorder != nil {
		o.Registerer = recorder
	}
	p, err := New(handle.Context(), o)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	return p, nil
}

// read takes the parameters whole: the framework's decoder would let repeated
// fields and null pass.
func read(parameters *json.Decoder) (adapter.Config, error) {
	if parameters == nil {
		return adapter.ParseConfig(nil)
	}
	var raw json.RawMessage
	if err := parameters.Decode(&raw); err != nil {
		return adapter.Config{}, fmt.Errorf("read plugin parameters: %w", err)
	}
	return adapter.ParseConfig(raw)
}

// TypedName returns the type and name of this instance.
func (p *Plugin) TypedName() fwkplugin.TypedName { return p.name }

// Consumes names the evidence. With thresholds it is required: the EPP does not
// start without a producer of that name, rather than have no evidence for ever.
func (p *Plugin) Consumes() fwkplugin.DataDependencies {
	if !p.adapter.Config().Thresholds() {
		return fwkplugin.DataDependencies{}
	}
	return fwkplugin.DataDependencies{Required: map[fwkplugin.DataKey]any{p.evidence: prefix.PrefixCacheMatchInfo{}}}
}
