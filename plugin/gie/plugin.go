package gie

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"

	"github.com/kvtuner/kvtuner/plugin/adapter"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// PluginType is the type in an EndpointPickerConfig.
const PluginType = adapter.PluginType

// Plugin is the policy as a plugin of the EPP. All methods may be called from
// any goroutine.
type Plugin struct {
	name    fwkplugin.TypedName
	log     *slog.Logger
	adapter *adapter.Adapter

	// producerExists is asked once, when all plugins are there.
	producerExists func(name string) bool
	checkProducer  sync.Once
}

var (
	_ requestcontrol.PreRequest     = (*Plugin)(nil)
	_ requestcontrol.ResponseHeader = (*Plugin)(nil)
	_ requestcontrol.ResponseBody   = (*Plugin)(nil)
	_ fwkplugin.ConsumerPlugin      = (*Plugin)(nil)
	_ datalayer.EndpointExtractor   = (*Plugin)(nil)
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
	// Producer says whether a plugin of this name exists; nil is yes. It is
	// asked at the first request, about Config.Policy's
	// PrefixMatchInfoProducerName.
	Producer func(name string) bool
}

// New makes a plugin that lives until ctx ends. Errors name the setting, its
// value and what is allowed.
func New(ctx context.Context, o Options) (*Plugin, error) {
	if o.Name == "" {
		o.Name = PluginType
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Producer == nil {
		o.Producer = func(string) bool { return true }
	}
	a, err := adapter.New(ctx, adapter.Options{Config: o.Config, Now: o.Now, Logger: o.Logger, Registerer: o.Registerer, OpenConfigMap: openConfigMap})
	if err != nil {
		return nil, err
	}
	return &Plugin{
		name:           fwkplugin.TypedName{Type: PluginType, Name: o.Name},
		log:            o.Logger,
		adapter:        a,
		producerExists: o.Producer,
	}, nil
}

// Factory makes the plugin from the parameters of an EndpointPickerConfig. Its
// metrics go to the EPP's own registry, and it ends with the EPP.
func Factory(name string, parameters json.RawMessage, handle fwkplugin.Handle) (fwkplugin.Plugin, error) {
	config, err := adapter.ParseConfig(parameters)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	if config.Pool == "" {
		config.Pool = adapter.PoolFlag()
	}
	ctx := handle.Context()
	p, err := New(ctx, Options{
		Name:       name,
		Config:     config,
		Logger:     slog.New(logr.ToSlogHandler(log.FromContext(ctx).WithName(name))),
		Registerer: ctrlmetrics.Registry,
		Producer:   func(name string) bool { return handle.Plugin(name) != nil },
	})
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	return p, nil
}

// TypedName returns the type and name of this instance.
func (p *Plugin) TypedName() fwkplugin.TypedName { return p.name }

// Consumes says that the evidence has to be there first.
func (p *Plugin) Consumes() map[string]any { return evidence.Declared() }

// requireProducer complains of a producer that is named and does not exist.
func (p *Plugin) requireProducer() {
	name := p.adapter.Config().PrefixMatchInfoProducerName
	if name == "" || p.producerExists(name) {
		return
	}
	p.adapter.Fault(adapter.FaultProducer)
	p.log.Error("No evidence will come: prefixMatchInfoProducerName names a plugin that is not configured",
		"prefixMatchInfoProducerName", name)
}
