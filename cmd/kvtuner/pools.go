package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// pools are the loops of one process: those of its configuration, which stay, and
// those that were discovered, which come and go.
type pools struct {
	ticks ticks

	mu      sync.Mutex
	loops   []*loop
	refused []refusal
	// term is not nil while this process tunes.
	term    context.Context
	running sync.WaitGroup
}

// Pools implements web.Pools.
func (p *pools) Pools() []web.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]web.Pool, 0, len(p.loops)+len(p.refused))
	for _, l := range p.loops {
		all = append(all, l)
	}
	for _, r := range p.refused {
		all = append(all, r)
	}
	return all
}

// config of a pool.
func (p *pools) config(name string) (tuner.PoolConfig, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.loops, func(l *loop) bool { return l.config.Name == name })
	if i < 0 {
		return tuner.PoolConfig{}, false
	}
	return p.loops[i].config, true
}

// run all loops until ctx ends, and those that are added meanwhile.
func (p *pools) run(ctx context.Context) {
	p.mu.Lock()
	p.term = ctx
	for _, l := range p.loops {
		p.start(l)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.term = nil // from here on none is added to what is waited for
	p.mu.Unlock()
	p.running.Wait()
}

// add a loop, which runs while this process tunes.
func (p *pools) add(l *loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = append(p.loops, l)
	if p.term != nil {
		p.start(l)
	}
}

// start is called with mu held.
func (p *pools) start(l *loop) {
	ctx, cancel := context.WithCancelCause(p.term)
	l.cancel, l.done = cancel, make(chan struct{})
	p.running.Go(func() {
		defer close(l.done)
		defer cancel(nil)
		l.run(ctx, p.ticks)
	})
}

// remove a loop. It ends in its own time; the channel, nil if it never ran, is closed
// then.
func (p *pools) remove(l *loop) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = slices.DeleteFunc(p.loops, func(other *loop) bool { return other == l })
	l.metrics.withdraw()
	if l.cancel == nil {
		return nil
	}
	l.cancel(errRemoved)
	return l.done
}

func (p *pools) refuse(all []refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = all
}

// refusal is shown in the place of a pool that cannot be tuned.
type refusal struct{ what, why string }

// Status implements web.Pool.
func (r refusal) Status() tuner.Status {
	return tuner.Status{Pool: r.what, Mode: tuner.Observe, Error: r.why}
}

// Timeline implements web.Pool.
func (refusal) Timeline() []tuner.Point { return nil }

// Obey implements web.Pool.
func (r refusal) Obey(context.Context, time.Time, tuner.Command) (tuner.Receipt, error) {
	return tuner.Receipt{}, fmt.Errorf("%w: %s", tuner.ErrRefused, r.why)
}
