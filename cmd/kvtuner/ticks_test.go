package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTicksComeAtOnceThenAtEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		pace := tickAtOnce(ctx, 15*time.Second)
		for n := range 4 {
			if got, want := (<-pace).Sub(start), time.Duration(n)*15*time.Second; got != want {
				t.Errorf("tick %d after %v, want %v", n, got, want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestBusyLoopMissesTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		pace := tickAtOnce(ctx, 15*time.Second)
		<-pace
		<-time.After(65 * time.Second)
		if got := (<-pace).Sub(start); got != 15*time.Second {
			t.Errorf("the tick that waited is of %v", got)
		}
		if got := (<-pace).Sub(start); got != 75*time.Second {
			t.Errorf("the next is of %v: ticks were worked off", got)
		}
	})
}
