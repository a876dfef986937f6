package adapter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// PluginType is the type of the plugin in an EndpointPickerConfig.
const PluginType = "selective-kv-policy"

// Adapter runs one policy for one pool. All methods may be called from any
// goroutine.
type Adapter struct {
	profile string
	signal  string
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	policy  *plugin.Policy

	endpoints endpoints
	inFlight  inFlight
	// scraped is set once the EPP's own scrape is passed on to Scraped.
	scraped        atomic.Bool
	warnCoordinate sync.Once
}

// Options are what an Adapter is made of.
type Options struct {
	Config Config
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger hears of refused documents and of what makes decisions
	// ineffective; nil is silent.
	Logger *slog.Logger
	// Registerer takes the metrics; nil exports none.
	Registerer prometheus.Registerer
	// OpenConfigMap opens what tuning.configMap names; nil refuses that setting.
	OpenConfigMap OpenConfigMap
}

// Watcher follows a pool's parameter document; every reader of package store and
// below is one.
type Watcher interface {
	Watch(ctx context.Context) <-chan store.Update
}

// OpenConfigMap opens the ConfigMap of a pool. It is the adapter's own business:
// this package does not know Kubernetes.
type OpenConfigMap func(m plugin.ConfigMap, pool string, log *slog.Logger) (Watcher, error)

// New makes an adapter. It lives until ctx ends: until then it follows the
// parameter document, and forgets what is over. Errors name the setting, its value
// and what is allowed.
func New(ctx context.Context, o Options) (*Adapter, error) {
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
	now := o.Now // the policy has a faster way to read the real clock
	if now == nil {
		now = time.Now
	}
	a := &Adapter{
		profile: o.Config.Profile,
		signal:  policy.Config().WaitingSignal,
		now:     now,
		log:     o.Logger,
		metrics: m,
		policy:  policy,
	}
	if err := a.start(ctx, o); err != nil {
		return nil, err
	}
	return a, nil
}

// Config is the policy's configuration in use, with defaults filled in.
func (a *Adapter) Config() plugin.Config { return a.policy.Config() }
