package main

import (
	"context"
	"fmt"
	"log/slog"
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
// nothing is published. Existing ones are never made.
func (k *cluster) documents(p tuner.PoolConfig, existing bool) (*configmap.Store, error) {
	o := configmap.Options{
		Client: k.Core, Namespace: p.Store.ConfigMap.Namespace, Name: p.Store.ConfigMap.Name, Key: p.Store.ConfigMap.Key,
		Pool: p.Name, Existing: existing, Logger: k.log,
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

func (k *cluster) reporter(t *tuner.Tuner, s *configmap.Store) *kube.Reporter {
	return &kube.Reporter{Pool: t, Statuses: s, Identity: k.Identity, Logger: k.log}
}

// refuse tells of an object that cannot stand for a pool, where that is wanted.
func (k *cluster) refuse(o kube.Object, why string) {
	if k.events != nil {
		k.events.Refuse(o, why)
	}
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
