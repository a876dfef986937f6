package main

import (
	"context"
	"sync"

	"github.com/kvtuner/kvtuner/store"
)

// lateFile is a file store that is opened when it is first needed, and again
// until that works: one pool's volume that is not mounted yet must not keep the
// daemon, and with it the other pools, from starting.
type lateFile struct {
	o store.FileOptions

	mu   sync.Mutex
	file *store.File
}

func (l *lateFile) open() (*store.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return l.file, nil
	}
	f, err := store.OpenFile(l.o)
	if err != nil {
		return nil, err
	}
	l.file = f
	return f, nil
}

// Load implements tuner.Documents, as the methods below do.
func (l *lateFile) Load(ctx context.Context) (*store.Document, error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	return f.Load(ctx)
}

func (l *lateFile) Swap(ctx context.Context, next *store.Document) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	return f.Swap(ctx, next)
}

func (l *lateFile) LoadCheckpoint(ctx context.Context) ([]byte, error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	return f.LoadCheckpoint(ctx)
}

func (l *lateFile) SaveCheckpoint(ctx context.Context, checkpoint []byte) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	return f.SaveCheckpoint(ctx, checkpoint)
}
