package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvtuner/kvtuner/tuner"
)

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
