package main

import (
	"context"
	"sync"

	"github.com/kvtuner/kvtuner/store"
)

// lateFile is a file store that is opened when it is first written, and again until
// that works: one pool's volume that is not mounted yet must not keep the daemon,
// and with it the other pools, from starting.
type lateFile struct {
	o store.FileOptions
	// observing reads without opening: an observer needs neither the right to write
	// nor the lock, and runs beside the tuner that has both.
	observing bool

	mu   sync.Mutex
	file *store.File
}

// reader is what is read by.
type reader interface {
	Load(ctx context.Context) (*store.Document, error)
	LoadCheckpoint(ctx context.Context) ([]byte, error)
}

func (l *lateFile) read() (reader, error) {
	if l.observing {
		return store.OpenFileReader(l.o)
	}
	return l.open()
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
	f, err := l.read()
	if err != nil {
		return nil, err
	}
	return f.Load(ctx)
}

func (l *lateFile) LoadCheckpoint(ctx context.Context) ([]byte, error) {
	f, err := l.read()
	if err != nil {
		return nil, err
	}
	return f.LoadCheckpoint(ctx)
}

func (l *lateFile) Swap(ctx context.Context, next *store.Document) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	return f.Swap(ctx, next)
}

func (l *lateFile) SaveCheckpoint(ctx context.Context, checkpoint []byte) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	return f.SaveCheckpoint(ctx, checkpoint)
}
