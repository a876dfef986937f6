package kvevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/gie/evidence"
)

// Type is the plugin's type in EndpointPickerConfig.
const Type = "kv-events-producer"

var (
	_ requestcontrol.PrepareDataPlugin = (*Producer)(nil)
	_ datalayer.EndpointExtractor      = (*Producer)(nil)
)

// Options is what a Producer is made of.
type Options struct {
	// Name of the plugin instance; Type if empty.
	Name   string
	Config Config
	// Tokenizer instead of the one that Config describes.
	Tokenizer Tokenizer
	// Logger; nil is quiet.
	Logger *slog.Logger
	// Registerer of the metrics; nil leaves them out.
	Registerer prometheus.Registerer
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Producer follows the endpoints of a pool and publishes, for each request, the
// prefix that each candidate endpoint holds, as [evidence.PrefixTiers].
type Producer struct {
	name      fwkplugin.TypedName
	config    Config
	tokenizer Tokenizer
	log       *slog.Logger
	metrics   *metrics
	now       func() time.Time
	hash      hasher

	ctx       context.Context
	running   sync.WaitGroup
	followers sync.Map // name -> *followed
	unnoticed sync.Once
	changes   sync.Mutex
}

// followed is a follower and how to stop it.
type followed struct {
	*follower
	address string
	stop    context.CancelFunc
}

// New returns a Producer whose followers end with ctx.
func New(ctx context.Context, o Options) (*Producer, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Type, err)
	}
	p := &Producer{
		name:      fwkplugin.TypedName{Type: Type, Name: o.Name},
		config:    o.Config,
		tokenizer: o.Tokenizer,
		log:       o.Logger,
		now:       o.Now,
		hash:      newHasher(),
		ctx:       ctx,
	}
	if p.name.Name == "" {
		p.name.Name = Type
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.now == nil {
		p.now = time.Now
	}
	var err error
	if p.metrics, err = newMetrics(o.Registerer, p.state); err != nil {
		return nil, fmt.Errorf("%s: registering metrics: %w", Type, err)
	}
	if p.tokenizer == nil && p.config.Tokenizer != nil {
		t := newHTTPTokenizer(p.config.Tokenizer, p.metrics)
		context.AfterFunc(ctx, t.client.CloseIdleConnections)
		p.tokenizer = t
	}
	return p, nil
}

// Factory makes the plugin for the framework: with strict parameters, metrics
// among the framework's own, and followers that end with the handle's context.
func Factory(name string, parameters json.RawMessage, handle fwkplugin.Handle) (fwkplugin.Plugin, error) {
	config, err := ParseConfig(parameters)
	if err != nil {
		return nil, err
	}
	ctx := handle.Context()
	return New(ctx, Options{
		Name:       name,
		Config:     *config,
		Logger:     slog.New(logr.ToSlogHandler(log.FromContext(ctx).WithName(Type))),
		Registerer: ctrlmetrics.Registry,
	})
}

// TypedName implements the framework's Plugin.
func (p *Producer) TypedName() fwkplugin.TypedName { return p.name }

// Produces implements the framework's ProducerPlugin.
func (p *Producer) Produces() map[string]any { return evidence.Declared() }

// Consumes implements the framework's ConsumerPlugin.
func (p *Producer) Consumes() map[string]any { return nil }

// Wait returns when all followers have ended, after the context has.
func (p *Producer) Wait() { p.running.Wait() }

// ExpectedInputType implements the framework's Extractor.
func (p *Producer) ExpectedInputType() reflect.Type { return datalayer.EndpointEventReflectType }

// Extract implements the framework's Extractor. It is not called.
func (p *Producer) Extract(context.Context, any, datalayer.Endpoint) error { return nil }

// ExtractEndpoint begins and ends to follow endpoints.
func (p *Producer) ExtractEndpoint(_ context.Context, e datalayer.EndpointEvent) error {
	if e.Endpoint == nil || e.Endpoint.GetMetadata() == nil {
		return errors.New("endpoint event without an endpoint")
	}
	meta := e.Endpoint.GetMetadata()
	name := meta.NamespacedName.String()
	if e.Type == datalayer.EventDelete {
		p.Forget(name)
		return nil
	}
	return p.Follow(name, meta.Address, rank(meta.NamespacedName.Name))
}

// rank of an endpoint that is one of several in a pod, by the name that the
// framework gives it.
func rank(name string) int {
	i := strings.LastIndex(name, "-rank-")
	if i < 0 {
		return 0
	}
	n, err := strconv.ParseUint(name[i+len("-rank-"):], 10, 10)
	if err != nil {
		return 0
	}
	return int(n)
}

// Follow begins to follow an engine, unless it is followed already at this
// address.
func (p *Producer) Follow(name, address string, rank int) error {
	if address == "" {
		return fmt.Errorf("endpoint %s has no address", name)
	}
	p.changes.Lock()
	defer p.changes.Unlock()
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	if old, ok := p.followers.Load(name); ok {
		if old.(*followed).address == address {
			return nil
		}
		old.(*followed).stop()
	}
	ctx, stop := context.WithCancel(p.ctx)
	f := &followed{p.follower(name, address, rank), address, stop}
	p.followers.Store(name, f)
	p.running.Go(func() {
		defer stop()
		f.run(ctx)
	})
	return nil
}

func (p *Producer) follower(name, address string, rank int) *follower {
	s := &zmqSource{
		events:  net.JoinHostPort(address, strconv.Itoa(p.config.Port+rank)),
		topic:   p.config.Topic,
		limit:   p.config.MaxMessageBytes,
		timeout: p.config.Timeout,
	}
	if p.config.ReplayPort > 0 {
		s.replays = net.JoinHostPort(address, strconv.Itoa(p.config.ReplayPort+rank))
	}
	return newFollower(s, &p.config, p.hash, p.metrics, p.log.With("endpoint", name), p.now)
}

// Forget ends to follow an engine.
func (p *Producer) Forget(name string) {
	p.changes.Lock()
	defer p.changes.Unlock()
	if f, ok := p.followers.LoadAndDelete(name); ok {
		f.(*followed).stop()
	}
}

// PrepareRequestData publishes the request's prefix on each candidate endpoint
// that can tell it. It never fails: without evidence the policy lets a request
// load.
func (p *Producer) PrepareRequestData(ctx context.Context, r *scheduling.LLMRequest, endpoints []scheduling.Endpoint) error {
	if !p.anyReady(endpoints) { // spare the tokenizer
		p.metrics.requests[outcomeNoEndpoint].Inc()
		p.publish(nil, endpoints)
		return nil
	}
	prompts, err := p.prompts(ctx, r, p.server(r, endpoints))
	var why refusal
	if errors.As(err, &why) {
		p.metrics.requests[why].Inc()
		return nil
	}
	p.metrics.requests[outcomeTokens].Inc()
	p.publish(prompts, endpoints)
	return nil
}

func (p *Producer) anyReady(endpoints []scheduling.Endpoint) bool {
	for _, e := range endpoints {
		if meta := e.GetMetadata(); meta != nil {
			if f := p.find(meta.NamespacedName.String()); f != nil && f.lookup() == lookupKnown {
				return true
			}
		}
	}
	return false
}

func (p *Producer) publish(prompts []Prompt, endpoints []scheduling.Endpoint) {
	known := make([]chains, len(prompts))
	for i := range prompts {
		known[i].prompt = &prompts[i]
	}
	for _, e := range endpoints {
		tiers, result := p.tiers(e, known)
		p.metrics.lookups[result].Inc()
		if tiers != nil {
			e.Put(evidence.PrefixTiersKey, tiers)
		}
	}
}

// server picks the candidate to tokenize with, by the request's identity.
func (p *Producer) server(r *scheduling.LLMRequest, endpoints []scheduling.Endpoint) string {
	if r == nil || len(endpoints) == 0 {
		return ""
	}
	meta := endpoints[maphash.String(p.hash.seed, r.RequestId)%uint64(len(endpoints))].GetMetadata()
	if meta == nil {
		return ""
	}
	return net.JoinHostPort(meta.Address, meta.Port)
}

func (p *Producer) tiers(e scheduling.Endpoint, prompts []chains) (*evidence.PrefixTiers, lookup) {
	meta := e.GetMetadata()
	if meta == nil {
		return nil, lookupUnfollowed
	}
	f := p.find(meta.NamespacedName.String())
	if f == nil {
		p.unnoticed.Do(func() {
			p.log.Warn("KV events: an endpoint is not followed; list the plugin under endpoint-notification-source", "endpoint", meta.NamespacedName.String())
		})
		return nil, lookupUnfollowed
	}
	if why := f.lookup(); why != lookupKnown {
		return nil, why
	}
	tiers := &evidence.PrefixTiers{Prompts: make([]plugin.PrefixMatch, len(prompts))}
	for i := range prompts {
		match, blockSize, why := f.match(&prompts[i])
		if why != lookupKnown {
			return nil, why
		}
		tiers.Prompts[i], tiers.BlockSize = match, blockSize
	}
	return tiers, lookupKnown
}

func (p *Producer) find(name string) *followed {
	f, ok := p.followers.Load(name)
	if !ok {
		return nil
	}
	return f.(*followed)
}

// Match returns the prefix of a prompt that an endpoint holds, and the size of
// its blocks in tokens. ok is false if that cannot be told.
func (p *Producer) Match(prompt Prompt, endpoint string) (match plugin.PrefixMatch, blockSize int, ok bool) {
	f := p.find(endpoint)
	if f == nil {
		return plugin.PrefixMatch{}, 0, false
	}
	match, blockSize, why := f.match(&chains{prompt: &prompt})
	return match, blockSize, why == lookupKnown
}

func (p *Producer) state() (endpoints, connected, blocks int) {
	p.followers.Range(func(_, v any) bool {
		f := v.(*followed)
		endpoints++
		if f.connected.Load() {
			connected++
		}
		blocks += f.index.len()
		return true
	})
	return endpoints, connected, blocks
}
