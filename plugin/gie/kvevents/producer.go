package kvevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
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

// PrepareRequestData publishes the request's prefix on each candidate endpoint
// that can tell it. It never fails: without evidence the policy lets a request
// load. Nor does it begin when the framework has given up, and sends the request.
func (p *Producer) PrepareRequestData(ctx context.Context, r *scheduling.LLMRequest, endpoints []scheduling.Endpoint) error {
	if ctx.Err() != nil {
		p.metrics.requests[outcomeTooLate].Inc()
		return nil
	}
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
		tiers.PromptTokens += len(prompts[i].prompt.Tokens)
	}
	return tiers, lookupKnown
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
