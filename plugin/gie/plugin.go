package gie

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// PluginType is the type in an EndpointPickerConfig.
const PluginType = "selective-kv-policy"

// Plugin is the policy as a plugin of the EPP. All methods may be called from
// any goroutine.
type Plugin struct {
	name    fwkplugin.TypedName
	profile string
	signal  string
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	policy  *plugin.Policy

	endpoints endpoints
	inFlight  inFlight
	// scraped is set once the EPP's own scrape is passed on to Extract.
	scraped atomic.Bool

	// producerExists is asked once, when all plugins are there.
	producerExists func() bool
	checkProducer  sync.Once
	warnCoordinate sync.Once
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
	Config Config
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

// New makes a plugin. It lives until ctx ends: until then it follows the
// parameter file, and forgets what is over. Errors name the setting, its value
// and what is allowed.
func New(ctx context.Context, o Options) (*Plugin, error) {
	if o.Name == "" {
		o.Name = PluginType
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	policy, err := plugin.New(plugin.Options{
		Config: o.Config.Policy, Pool: o.Config.Pool, Now: o.Now, Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Config.Pool, o.Registerer)
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		name:           fwkplugin.TypedName{Type: PluginType, Name: o.Name},
		profile:        o.Config.Profile,
		signal:         policy.Config().WaitingSignal,
		now:            o.Now,
		log:            o.Logger,
		metrics:        m,
		policy:         policy,
		producerExists: producerExists(policy.Config().PrefixMatchInfoProducerName, o.Producer),
	}
	if err := p.start(ctx, o.Config.Pool); err != nil {
		return nil, err
	}
	return p, nil
}

func producerExists(name string, exists func(string) bool) func() bool {
	return func() bool { return name == "" || exists == nil || exists(name) }
}

// Factory makes the plugin from the parameters of an EndpointPickerConfig. Its
// metrics go to the EPP's own registry, and it ends with the EPP.
func Factory(name string, parameters json.RawMessage, handle fwkplugin.Handle) (fwkplugin.Plugin, error) {
	config, err := ParseConfig(parameters)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	if config.Pool == "" {
		config.Pool = poolFlag()
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

// poolFlag is the value of the EPP's flag --pool-name, empty if there is none.
func poolFlag() string {
	flag := pflag.Lookup("pool-name")
	if flag == nil {
		return ""
	}
	return flag.Value.String()
}

// TypedName returns the type and name of this instance.
func (p *Plugin) TypedName() fwkplugin.TypedName { return p.name }

// Consumes says that the evidence has to be there first.
func (p *Plugin) Consumes() map[string]any { return evidence.Declared() }
