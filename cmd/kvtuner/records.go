package main

import (
	"context"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// records is where decisions are read: a running daemon, or the history's file.
type records interface {
	list(ctx context.Context, filter url.Values) (web.DecisionsResponse, error)
	decision(ctx context.Context, pool, id string) (store.Decision, error)
}

// source is the flags that say where decisions are read.
type source struct {
	daemon *endpoint
	db     *string
}

func addSource(cmd *cobra.Command) source {
	s := source{addEndpoint(cmd), cmd.Flags().String("db", "", "read the history's `FILE` itself, while no daemon runs")}
	cmd.MarkFlagsMutuallyExclusive("address", "db")
	return s
}

// read opens the source for as long as do runs.
func (s source) read(ctx context.Context, do func(records) error) error {
	if *s.db == "" {
		c, err := newClient(ctx, *s.daemon)
		if err != nil {
			return err
		}
		return do(c)
	}
	h, err := store.OpenHistory(store.HistoryOptions{Path: *s.db, ReadOnly: true})
	if err != nil {
		return withExitCode(err)
	}
	defer h.Close()
	return do(file{h})
}

// file reads a history without a daemon.
type file struct{ history *store.History }

func (f file) list(_ context.Context, filter url.Values) (web.DecisionsResponse, error) {
	selected, err := web.ParseFilter(filter, time.Now())
	if err != nil {
		return web.DecisionsResponse{}, withExitCode(err)
	}
	d, err := web.List(f.history, selected)
	return d, withExitCode(err)
}

func (f file) decision(_ context.Context, pool, id string) (store.Decision, error) {
	d, err := f.history.Get(pool, id)
	return d, withExitCode(err)
}
