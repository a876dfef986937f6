package kvevents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
)

// followed is a follower and how to stop it.
type followed struct {
	*follower
	address string
	stop    context.CancelFunc
}

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

func (p *Producer) find(name string) *followed {
	f, ok := p.followers.Load(name)
	if !ok {
		return nil
	}
	return f.(*followed)
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
