package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// Memory keeps one pool's document and checkpoint in this process: for tests,
// the demo and the bench. All methods may be called from any goroutine.
type Memory struct {
	pool     string
	audience audience

	mu         sync.Mutex
	document   *Document
	checkpoint []byte
}

// NewMemory returns an empty store for pool. A document of another pool is
// refused; an empty name takes any.
func NewMemory(pool string) *Memory { return &Memory{pool: pool} }

// Load returns a copy of the document, or ErrNotFound before the first Swap.
func (m *Memory) Load(context.Context) (*Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.document == nil {
		return nil, m.missing("parameter document")
	}
	return m.document.Clone(), nil
}

// Swap stores a copy of next if its revision follows the stored one: stored + 1,
// or any when there is none. Otherwise it returns a ConflictError; a document that
// is not valid is refused with ErrInvalid.
func (m *Memory) Swap(_ context.Context, next *Document) error {
	if err := Accept(next, m.pool); err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := Follows(m.document, next); err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	m.document = next.inUTC()
	m.audience.tell(m.document)
	return nil
}

// Watch returns the current state first, ErrNotFound included, then each
// change. A slow reader gets the latest only. The channel is closed when ctx
// ends.
func (m *Memory) Watch(ctx context.Context) <-chan Update {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.document == nil {
		return m.audience.join(ctx, Update{Err: m.missing("parameter document")})
	}
	return m.audience.join(ctx, Update{Document: m.document.Clone()})
}

// LoadCheckpoint returns a copy of the tuner's checkpoint, or ErrNotFound.
func (m *Memory) LoadCheckpoint(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checkpoint == nil {
		return nil, m.missing("checkpoint")
	}
	return bytes.Clone(m.checkpoint), nil
}

// SaveCheckpoint replaces the tuner's checkpoint; see MaxCheckpointBytes.
func (m *Memory) SaveCheckpoint(_ context.Context, checkpoint []byte) error {
	if err := AcceptCheckpoint(checkpoint); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkpoint = append([]byte{}, checkpoint...)
	return nil
}

func (m *Memory) missing(what string) error {
	return fmt.Errorf("%s of pool %q in memory: %w", what, m.pool, ErrNotFound)
}
