package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/kube"
)

// loop is one pool of a daemon: its tuner, and what runs beside it.
type loop struct {
	led
	config   tuner.PoolConfig
	check    *poolCheck
	reporter *kube.Reporter // nil without a ConfigMap
	metrics  *ownMetrics

	// A loop that has been started is cancelled, and closes done when it has ended.
	cancel context.CancelCauseFunc
	done   chan struct{}
	// follows, if not nil, is closed by the loop that had the pool before.
	follows <-chan struct{}
}

// errRemoved is why a loop ends that nobody will take over.
var errRemoved = errors.New("the object that stands for the pool is gone, or says something else")

// leaveTimeout bounds the writes that end a trial.
const leaveTimeout = 10 * time.Second

// run until ctx ends.
func (l *loop) run(ctx context.Context, t ticks) {
	if l.follows != nil {
		<-l.follows
	}
	var running sync.WaitGroup
	pace, looks := t(ctx, l.Interval()), t(ctx, checkEvery)
	running.Go(func() { l.Run(ctx, pace) })
	running.Go(func() { l.check.repeat(ctx, looks) })
	if l.reporter != nil {
		reports := t(ctx, reportInterval)
		running.Go(func() { l.reporter.Run(ctx, reports) })
	}
	running.Wait()
	if why := context.Cause(ctx); errors.Is(why, errRemoved) {
		l.leave(context.WithoutCancel(ctx), why)
	}
}

func (l *loop) leave(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := l.Leave(ctx, time.Now(), why.Error()); err != nil {
		l.check.log.Warn("a trial of the pool may last until it expires", "err", err)
	}
}

// ownMetrics are those that one pool registers, to be taken back when it is removed.
type ownMetrics struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (m *ownMetrics) Register(c prometheus.Collector) error {
	err := m.Registerer.Register(c)
	if err == nil {
		m.all = append(m.all, c)
	}
	return err
}

func (m *ownMetrics) withdraw() {
	for _, c := range m.all {
		m.Unregister(c)
	}
}

// led is a pool that obeys only while this process tunes it: on standby, another
// replica does, and only that one may write.
type led struct {
	*tuner.Tuner
	leads *atomic.Bool
}

// Obey implements web.Pool.
func (p led) Obey(ctx context.Context, now time.Time, o tuner.Command) (tuner.Receipt, error) {
	if !p.leads.Load() {
		return tuner.Receipt{}, fmt.Errorf("%w: this replica is on standby; command the one that holds the lease", tuner.ErrRefused)
	}
	return p.Tuner.Obey(ctx, now, o)
}

// Status implements web.Pool.
func (p led) Status() tuner.Status {
	s := p.Tuner.Status()
	if !p.leads.Load() && s.Error == "" {
		s.Ready, s.Doing = false, "on standby: another replica holds the lease"
	}
	return s
}
