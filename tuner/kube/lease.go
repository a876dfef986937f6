package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLostLease means that this process has stopped leading: its Lease could not be
// renewed in time, or another has it.
var ErrLostLease = errors.New("the Lease was lost")

// Lease elects one of several processes.
type Lease struct {
	Cluster   *Cluster
	Namespace string
	Name      string
	// Duration is how long the others wait for a leader that does not renew; whole
	// seconds, 1 or more. The leader itself gives up after two thirds of it.
	Duration time.Duration
	Logger   *slog.Logger
}

// Lead waits until this process leads, and calls run with a context that ends when
// ctx does or the Lease is lost. The Lease is released once run has returned, so
// that a successor never meets its last writes. Lead returns nil if ctx ended or
// run returned by itself, else ErrLostLease.
func (l Lease) Lead(ctx context.Context, run func(context.Context)) error {
	elected, resign := context.WithCancel(context.WithoutCancel(ctx))
	terms := make(chan context.Context)
	elector, err := leaderelection.NewLeaderElector(l.config(func(term context.Context) {
		select {
		case terms <- term:
		case <-term.Done():
		}
	}))
	if err != nil {
		resign()
		return fmt.Errorf("electing a leader: %w", err)
	}
	var campaign sync.WaitGroup
	campaign.Go(func() { elector.Run(elected) })
	defer campaign.Wait()
	defer resign()
	select {
	case <-ctx.Done():
		return nil
	case term := <-terms:
		return l.serve(ctx, term, run)
	}
}

// serve one term.
func (l Lease) serve(ctx, term context.Context, run func(context.Context)) error {
	l.Logger.Info("this replica leads", "lease", l.String())
	work, stop := context.WithCancel(term)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	run(work)
	if term.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", l, ErrLostLease)
	}
	return nil
}

func (l Lease) config(start func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     l.Cluster.Coordination,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Cluster.Identity},
		},
		LeaseDuration: l.Duration, RenewDeadline: l.Duration * 2 / 3, RetryPeriod: l.Duration * 2 / 15,
		ReleaseOnCancel: true, Name: l.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: start,
			OnStoppedLeading: func() {}, // the term's context says so
			OnNewLeader: func(identity string) {
				if identity != l.Cluster.Identity {
					l.Logger.Info("standing by: another replica leads", "lease", l.String(), "leader", identity)
				}
			},
		},
	}
}

// String names the Lease.
func (l Lease) String() string { return "Lease " + l.Namespace + "/" + l.Name }
