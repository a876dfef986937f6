package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
)

// checkEvery is how often a daemon looks at a pool's set-up while something is
// amiss, the first time at once; otherwise one turn of restTurns.
const (
	checkEvery = 2 * time.Minute
	restTurns  = 5
)

// poolCheck looks at a pool beside its loop, never in its way.
type poolCheck struct {
	config  tuner.Config
	pool    tuner.PoolConfig
	client  *connect.Client
	cluster *cluster
	show    func([]tuner.Finding)
	log     *slog.Logger
	said    map[tuner.Finding]bool
}

func (c *poolCheck) repeat(ctx context.Context, ticks <-chan time.Time) {
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			if len(c.said) > 0 || turn%restTurns == 0 {
				c.look(ctx)
			}
		}
	}
}

// look shows what is amiss, and logs what was not there the last time.
func (c *poolCheck) look(ctx context.Context) {
	r, err := checkPool(ctx, c.config, c.pool, c.client, c.cluster)
	if ctx.Err() != nil {
		return // a shutdown looks like an outage
	}
	if err != nil {
		c.log.Warn("the set-up could not be looked at", "err", err)
		return
	}
	now := map[tuner.Finding]bool{}
	for _, f := range r.Amiss() {
		key := tuner.Finding{Check: f.Check, Level: f.Level}
		now[key] = true
		if !c.said[key] {
			c.log.Warn("the set-up is not as it should be", "check", f.Check, "level", f.Level, "found", f.Found, "setting", f.Setting, "fix", f.Fix)
		}
	}
	c.said = now
	c.show(r.Amiss())
}
