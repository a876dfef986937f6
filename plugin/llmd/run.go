package llmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// sweepInterval is how often what is over is looked for.
const sweepInterval = time.Minute

// start follows the parameter file, if there is one, until ctx ends.
func (p *Plugin) start(ctx context.Context, pool string) error {
	updates, err := p.watch(ctx, pool)
	if err != nil {
		return err
	}
	go p.run(ctx, updates)
	return nil
}

// watch is nil if no document is read. What is there already is in force when
// it returns: the first request must not run on less than is known.
func (p *Plugin) watch(ctx context.Context, pool string) (<-chan store.Update, error) {
	tuning := p.policy.Config().Tuning
	if tuning == nil {
		return nil, nil
	}
	reader, err := store.OpenFileReader(store.FileOptions{Path: tuning.File, Pool: pool, Logger: p.log})
	if err != nil {
		return nil, fmt.Errorf("tuning.file: %w", err)
	}
	updates := reader.Watch(ctx)
	if first, ok := <-updates; ok {
		p.update(first)
	}
	return updates, nil
}

func (p *Plugin) run(ctx context.Context, updates <-chan store.Update) {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			p.sweep(p.now())
		case update, ok := <-updates:
			if !ok {
				return
			}
			p.update(update)
		}
	}
}

// update obeys a document. The policy refuses, counts and logs what it must; a
// file that is not there yet is no fault.
func (p *Plugin) update(update store.Update) {
	switch {
	case update.Err == nil:
		_ = p.policy.Apply(update.Document)
	case errors.Is(update.Err, store.ErrNotFound):
		p.log.Info("No parameter document: what is in force stays", "revision", p.policy.InForce().Revision)
	default:
		p.policy.Reject(update.Err)
	}
}

func (p *Plugin) sweep(now time.Time) {
	for range p.inFlight.expire(now) {
		p.metrics.fault(faultExpired)
	}
	p.endpoints.sweep(now)
}
