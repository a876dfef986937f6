package main

import (
	"context"
	"time"
)

// ticks makes the channel that paces one pool's loop, until ctx ends.
type ticks func(ctx context.Context, interval time.Duration) <-chan time.Time

// tickAtOnce ticks now, so that a pool is taken over at start, then at each
// interval. A loop that is busy misses ticks rather than working them off.
func tickAtOnce(ctx context.Context, interval time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	out <- time.Now()
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				select {
				case out <- now:
				default:
				}
			}
		}
	}()
	return out
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
