package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// medium is a store whose content can be tampered with, behind its back.
type medium interface {
	tuner.Documents
	// content is the document's bytes; nil if there is none.
	content() ([]byte, error)
	// put replaces them; nil removes the document.
	put(raw []byte) error
	// putCheckpoint does the same to the checkpoint.
	putCheckpoint(raw []byte) error
}

// memory is a store in memory that can hold garbage, too.
type memory struct {
	*store.Memory
	garbage []byte // nil while the document is sound
}

func newMemory() *memory { return &memory{Memory: store.NewMemory(poolName)} }

// Load implements tuner.Documents.
func (m *memory) Load(ctx context.Context) (*store.Document, error) {
	if m.garbage != nil {
		_, err := store.Parse(m.garbage)
		return nil, err
	}
	return m.Memory.Load(ctx)
}

// Swap implements tuner.Documents; as a file does, it leaves garbage alone.
func (m *memory) Swap(ctx context.Context, next *store.Document) error {
	if m.garbage != nil {
		return fmt.Errorf("store parameter document: %w", store.ErrInvalid)
	}
	return m.Memory.Swap(ctx, next)
}

func (m *memory) content() ([]byte, error) {
	if m.garbage != nil {
		return m.garbage, nil
	}
	d, err := m.Memory.Load(context.Background())
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return store.Format(d)
}

func (m *memory) put(raw []byte) error {
	checkpoint, err := m.LoadCheckpoint(context.Background())
	fresh := newMemory()
	if err == nil {
		err = fresh.SaveCheckpoint(context.Background(), checkpoint)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if raw != nil {
		d, err := store.Parse(raw)
		if err != nil {
			fresh.garbage = raw
		} else if err := fresh.Memory.Swap(context.Background(), d); err != nil {
			return err
		}
	}
	*m = *fresh
	return nil
}

func (m *memory) putCheckpoint(raw []byte) error {
	if raw != nil {
		return m.SaveCheckpoint(context.Background(), raw)
	}
	document, err := m.content()
	if err != nil {
		return err
	}
	*m = *newMemory()
	return m.put(document)
}

// file is a store in a file.
type file struct {
	*store.File
	path string
}

func newFile(dir string) (*file, error) {
	path := filepath.Join(dir, "parameters.json")
	f, err := store.OpenFile(store.FileOptions{Path: path, Pool: poolName})
	if err != nil {
		return nil, err
	}
	return &file{f, path}, nil
}

func (f *file) content() ([]byte, error) {
	raw, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func (f *file) put(raw []byte) error { return overwrite(f.path, raw) }

func (f *file) putCheckpoint(raw []byte) error { return overwrite(f.path+store.CheckpointSuffix, raw) }

// overwrite a file as an editor does that knows of no atomic replacement.
func overwrite(path string, raw []byte) error {
	if raw != nil {
		return os.WriteFile(path, raw, 0o644)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
