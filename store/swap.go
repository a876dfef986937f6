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

// follows checks next against the stored document, nil if there is none.
func follows(stored, next *Document) error {
	var revision int64
	if stored != nil {
		revision = stored.Revision
	}
	if next.Revision-1 != revision {
		return &ConflictError{Stored: revision, Next: next.Revision}
	}
	return nil
}

func acceptCheckpoint(checkpoint []byte) error {
	if len(checkpoint) > MaxCheckpointBytes {
		return fmt.Errorf("save checkpoint: %w", refuse("", fmt.Sprintf("checkpoint of %d bytes", len(checkpoint)), fmt.Sprintf("at most %d bytes", MaxCheckpointBytes)))
	}
	return nil
}
