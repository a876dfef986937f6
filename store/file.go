package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Suffixes of what a File keeps beside the document: the lock that writers hold
// in turn, never removed, and a directory for files being written.
const (
	lockSuffix    = ".lock"
	scratchSuffix = ".tmp"
)

// File keeps one pool's document in a file and the checkpoint beside it. A write
// replaces the whole file and is on disk when it returns: whatever kills the
// process, the file holds the old value or the new one. Several processes may
// write; compare-and-swap holds between them. All methods may be called from
// any goroutine.
type File struct {
	*FileReader
	// turn lets one goroutine at a time wait for the lock file.
	turn chan struct{}
}

// OpenFile checks that the document's directory can be written, and removes
// what killed writers left behind.
func OpenFile(o FileOptions) (*File, error) {
	r, err := OpenFileReader(o)
	if err != nil {
		return nil, err
	}
	f := &File{FileReader: r, turn: make(chan struct{}, 1)}
	if err := f.refuseLink(); err != nil {
		return nil, fmt.Errorf("open parameter document: %w", err)
	}
	if err := f.locked(context.Background(), f.clean); err != nil {
		return nil, fmt.Errorf("open parameter document: %w", err)
	}
	return f, nil
}

// refuseLink keeps a write from replacing a link by a file.
func (f *File) refuseLink() error {
	info, err := os.Lstat(f.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err, f.o.Path)
	}
	if !info.Mode().IsRegular() {
		return refuse("path", f.o.Path, "a regular file to write to, not one of mode "+info.Mode().String())
	}
	return nil
}

// Swap stores next if its revision follows the stored one: stored + 1, or any when
// there is none. Otherwise it returns a ConflictError. A document that is not
// valid is refused with ErrInvalid, as is a write over a file that cannot be
// understood: somebody has to look at that first.
func (f *File) Swap(ctx context.Context, next *Document) error {
	if err := Accept(next, f.o.Pool); err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	raw, err := Format(next)
	if err != nil {
		return err
	}
	err = f.locked(ctx, func() error {
		stored, err := f.Load(ctx)
		if errors.Is(err, ErrInvalid) {
			return fmt.Errorf("%w; repair the file, or remove it", err)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err := Follows(stored, next); err != nil {
			return err
		}
		return f.replace(f.o.Path, raw)
	})
	if err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	return nil
}

// SaveCheckpoint replaces the tuner's checkpoint; see MaxCheckpointBytes. On an
// error the old one stays.
func (f *File) SaveCheckpoint(ctx context.Context, checkpoint []byte) error {
	if err := AcceptCheckpoint(checkpoint); err != nil {
		return err
	}
	err := f.locked(ctx, func() error { return f.replace(f.o.Path+CheckpointSuffix, checkpoint) })
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// replace puts data at path and on disk. Readers see the old or the new file.
func (f *File) replace(path string, data []byte) error {
	scratch := f.o.Path + scratchSuffix
	if err := os.Mkdir(scratch, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return explain(err, path)
	}
	pending, err := renameio.NewPendingFile(path, renameio.WithTempDir(scratch),
		renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		return explain(err, path)
	}
	defer pending.Cleanup()
	if _, err := pending.Write(data); err != nil {
		return explain(err, path)
	}
	if err := pending.CloseAtomicallyReplace(); err != nil {
		return explain(err, path)
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes a rename in dir survive a crash of the machine.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("written, but not known to be on disk: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("written, but not known to be on disk: %w", err)
	}
	return nil
}

// clean removes files that were being written when their writer was killed. The
// lock is held, so nobody is writing.
func (f *File) clean() error {
	scratch := f.o.Path + scratchSuffix
	left, err := os.ReadDir(scratch)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(err, f.o.Path)
	}
	for _, entry := range left {
		if err := os.Remove(filepath.Join(scratch, entry.Name())); err != nil {
			return explain(err, f.o.Path)
		}
	}
	return nil
}

// locked calls do while no other goroutine or process writes.
func (f *File) locked(ctx context.Context, do func() error) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait to write %s: %w", f.o.Path, context.Cause(ctx))
	}
	path := f.o.Path + lockSuffix
	lock, err := lockFile(ctx, path)
	if err != nil {
		return explain(err, path)
	}
	defer lock.Close()
	return do()
}
