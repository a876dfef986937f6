package store

import "fmt"

// MaxCheckpointBytes is the largest checkpoint that a store takes.
const MaxCheckpointBytes = 1 << 20

// accept checks a document on its own: valid, and of this pool unless pool is
// empty.
func accept(d *Document, pool string) error {
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

// follows checks next against the stored document, nil if there is none. Where
// there is none any revision may come first, so that a document that was lost can
// be written again above the revision that its readers have seen.
func follows(stored, next *Document) error {
	if stored == nil || next.Revision-1 == stored.Revision {
		return nil
	}
	return &ConflictError{Stored: stored.Revision, Next: next.Revision}
}

func acceptCheckpoint(checkpoint []byte) error {
	if len(checkpoint) > MaxCheckpointBytes {
		return fmt.Errorf("save checkpoint: %w", refuse("", fmt.Sprintf("checkpoint of %d bytes", len(checkpoint)), fmt.Sprintf("at most %d bytes", MaxCheckpointBytes)))
	}
	return nil
}
