package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/kube"
)

// cluster is what the daemon has of Kubernetes.
type cluster struct {
	*kube.Cluster
	log    *slog.Logger
	events *kube.Events
	// reporters of the pools that are in a ConfigMap.
	reporters []*kube.Reporter
}

// newCluster connects if the configuration needs it; else it returns nil.
func newCluster(c tuner.Config, log *slog.Logger) (*cluster, error) {
	if !c.UsesKubernetes() {
		return nil, nil
	}
	connected, err := kube.Connect(c.Kubernetes.Kubeconfig, log)
	if err != nil {
		return nil, usage(fmt.Errorf("setting kubernetes: %w", err))
	}
	k := &cluster{Cluster: connected, log: log}
	if c.Kubernetes.Events {
		k.events = kube.NewEvents(context.Background(), connected)
	}
	return k, nil
}

// documents opens a pool's ConfigMap. In observe mode nothing is taken over, for
// nothing is published.
func (k *cluster) documents(p tuner.PoolConfig) (*configmap.Store, error) {
	o := configmap.Options{
		Client: k.Core, Namespace: p.Store.ConfigMap.Namespace, Name: p.Store.ConfigMap.Name, Key: p.Store.ConfigMap.Key,
		Pool: p.Name, Logger: k.log,
	}
	if o.Namespace == "" {
		o.Namespace = k.Namespace
	}
	if p.Mode != tuner.Observe {
		o.Identity = k.Identity
	}
	s, err := configmap.Open(o)
	if err != nil {
		return nil, usage(fmt.Errorf("store.configMap: %w", err))
	}
	return s, nil
}

// journal tells of a pool's decisions where that is wanted.
func (k *cluster) journal(j tuner.Journal, s *configmap.Store) tuner.Journal {
	if k.events == nil {
		return j
	}
	return k.events.Journal(j, s.Reference)
}

func (k *cluster) report(t *tuner.Tuner, s *configmap.Store) {
	k.reporters = append(k.reporters, &kube.Reporter{Pool: t, Statuses: s, Identity: k.Identity, Logger: k.log})
}

// runReporters at the pace of a clock until ctx ends. Their first report is soon
// after the first step.
func (k *cluster) runReporters(ctx context.Context, t ticks) {
	if k == nil {
		return
	}
	var running sync.WaitGroup
	for _, r := range k.reporters {
		pace := t(ctx, reportInterval)
		running.Go(func() { r.Run(ctx, pace) })
	}
	running.Wait()
}

// reportInterval is how old a change may be before the readable status has it.
const reportInterval = 5 * time.Second

// lead calls run once this process may tune: at once if there is no election.
func (k *cluster) lead(ctx context.Context, c tuner.LeaseConfig, run func(context.Context)) error {
	if k == nil || c.Name == "" {
		run(ctx)
		return nil
	}
	l := kube.Lease{Cluster: k.Cluster, Namespace: c.Namespace, Name: c.Name, Duration: c.Duration, Logger: k.log}
	if l.Namespace == "" {
		l.Namespace = k.Namespace
	}
	return l.Lead(ctx, run)
}

func (k *cluster) close() {
	if k != nil && k.events != nil {
		k.events.Close()
	}
}
