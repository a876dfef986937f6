package store

import "fmt"

// MaxCheckpointBytes is the largest checkpoint that a store takes.
const MaxCheckpointBytes = 1 << 20

// Accept checks a document on its own, as every store does on reading and before
// writing: valid, and of this pool unless pool is empty. Errors wrap ErrInvalid.
func Accept(d *Document, pool string) error {
	if d == nil {
		return refuse("", d, "a document")
	}
	if err := d.Validate(); err != nil {
		return err
	}
	if pool != "" && d.Pool != pool {
		return refuse("pool", d.Pool, fmt.Sprintf("%q, the pool of this store", pool))
	}
	return nil
}

// Follows checks next against the stored document, nil if there is none, and
// returns a ConflictError. Where there is none any revision may come first, so
// that a document that was lost can be written again above the revision that its
// readers have seen.
func Follows(stored, next *Document) error {
	if stored == nil || next.Revision-1 == stored.Revision {
		return nil
	}
	return &ConflictError{Stored: stored.Revision, Next: next.Revision}
}

// AcceptCheckpoint refuses one that is too large; see MaxCheckpointBytes.
func AcceptCheckpoint(checkpoint []byte) error {
	if len(checkpoint) > MaxCheckpointBytes {
		return fmt.Errorf("save checkpoint: %w", refuse("", fmt.Sprintf("checkpoint of %d bytes", len(checkpoint)), fmt.Sprintf("at most %d bytes", MaxCheckpointBytes)))
	}
	return nil
}
