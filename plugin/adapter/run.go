package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// sweepInterval is how often what is over is looked for.
const sweepInterval = time.Minute

// start follows the parameter document, if there is one, until ctx ends.
func (a *Adapter) start(ctx context.Context, o Options) error {
	updates, err := a.watch(ctx, o)
	if err != nil {
		return err
	}
	go a.run(ctx, updates)
	return nil
}

// watch is nil if no document is read. What is there already is in force when
// it returns: the first request must not run on less than is known.
func (a *Adapter) watch(ctx context.Context, o Options) (<-chan store.Update, error) {
	tuning := a.policy.Config().Tuning
	if tuning == nil {
		return nil, nil
	}
	reader, err := a.open(tuning, o)
	if err != nil {
		return nil, err
	}
	updates := reader.Watch(ctx)
	if first, ok := <-updates; ok {
		a.update(first)
	}
	return updates, nil
}

// open what tuning names.
func (a *Adapter) open(tuning *plugin.Tuning, o Options) (Watcher, error) {
	if tuning.ConfigMap == nil {
		reader, err := store.OpenFileReader(store.FileOptions{Path: tuning.File, Pool: o.Config.Pool, Logger: a.log})
		if err != nil {
			return nil, fmt.Errorf("tuning.file: %w", err)
		}
		return reader, nil
	}
	if o.OpenConfigMap == nil {
		return nil, &store.FieldError{Field: "tuning.configMap", Value: tuning.ConfigMap.Name,
			Allowed: "tuning.file: this Endpoint Picker does not read ConfigMaps; mount it and name the file"}
	}
	reader, err := o.OpenConfigMap(*tuning.ConfigMap, o.Config.Pool, a.log)
	if err != nil {
		return nil, fmt.Errorf("tuning.configMap: %w", err)
	}
	return reader, nil
}

func (a *Adapter) run(ctx context.Context, updates <-chan store.Update) {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			a.sweep(a.now())
		case update, ok := <-updates:
			if !ok {
				return
			}
			a.update(update)
		}
	}
}

// update obeys a document. The policy refuses, counts and logs what it must; a
// file that is not there yet is no fault.
func (a *Adapter) update(update store.Update) {
	switch {
	case update.Err == nil:
		_ = a.policy.Apply(update.Document)
	case errors.Is(update.Err, store.ErrNotFound):
		a.log.Info("No parameter document: what is in force stays", "revision", a.policy.InForce().Revision)
	case errors.Is(update.Err, store.ErrStopped):
		a.policy.Stop(update.Err)
	default:
		a.policy.Reject(update.Err)
	}
}

func (a *Adapter) sweep(now time.Time) {
	for range a.inFlight.expire(now) {
		a.Fault(FaultExpired)
	}
	a.endpoints.sweep(now)
}
