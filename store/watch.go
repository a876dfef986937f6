package store

import (
	"context"
	"sync"
)

// Update is what a watcher sees: a document or an error, never both.
type Update struct {
	// Document is the reader's own copy.
	Document *Document
	// Err says why there is none: ErrNotFound before the first write and after
	// a removal, ErrInvalid for a document that is refused, else what failed
	// while reading. The watch goes on; a reader keeps what it has in force.
	Err error
}

// mailbox holds the latest update for one reader. A slow reader misses what
// lies between and never holds up a writer.
type mailbox struct {
	mu     sync.Mutex
	ch     chan Update
	closed bool
}

func newMailbox() *mailbox { return &mailbox{ch: make(chan Update, 1)} }

// put replaces what the reader has not taken yet.
func (m *mailbox) put(u Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	select {
	case <-m.ch:
	default:
	}
	m.ch <- u // Never blocks: the buffer is empty and put is the only sender.
}

// close ends the watch. An update not taken yet can still be read.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.ch)
	}
}

// audience is the set of readers of one store.
type audience struct {
	mu      sync.Mutex
	readers map[*mailbox]struct{}
}

// join adds a reader until ctx ends, its mailbox holding current.
func (a *audience) join(ctx context.Context, current Update) <-chan Update {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := newMailbox()
	m.put(current)
	if a.readers == nil {
		a.readers = map[*mailbox]struct{}{}
	}
	a.readers[m] = struct{}{}
	context.AfterFunc(ctx, func() { a.leave(m) })
	return m.ch
}

func (a *audience) leave(m *mailbox) {
	a.mu.Lock()
	delete(a.readers, m)
	a.mu.Unlock()
	m.close()
}

// tell gives every reader its own copy of d.
func (a *audience) tell(d *Document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := range a.readers {
		m.put(Update{Document: d.Clone()})
	}
}
