package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// CheckpointSuffix is what follows the document's path to name the file of the
// tuner's checkpoint.
const CheckpointSuffix = ".checkpoint"

// StopSuffix is what follows the document's path to name the kill switch: while
// a file of that name is there, whatever it holds, loads and writes of the
// document return a StoppedError.
const StopSuffix = ".stop"

// maxStopBytes of the kill switch are read as its reason.
const maxStopBytes = 1 << 10

// DefaultPollInterval is how often a watch looks at the file by itself, for
// file systems that tell nothing (network mounts, exhausted inotify limits) and
// for a directory that is created or replaced.
const DefaultPollInterval = 5 * time.Second

// FileOptions say where the document of a pool is.
type FileOptions struct {
	// Path of the document. Its directory must exist to write, and may come
	// later to read.
	Path string
	// Pool, if set, is the only one whose document is accepted.
	Pool string
	// Logger tells about trouble with watching; nil is silent.
	Logger *slog.Logger
	// PollInterval of a watch; 0 is DefaultPollInterval.
	PollInterval time.Duration
	// NewTicker makes the ticker for it, with its stop function; nil is
	// time.NewTicker.
	NewTicker func(time.Duration) (<-chan time.Time, func())
}

func (o FileOptions) withDefaults() (FileOptions, error) {
	if o.Path == "" {
		return o, refuse("path", o.Path, "the path of a file")
	}
	if o.PollInterval < 0 {
		return o, refuse("poll interval", o.PollInterval, "0 for the default, or more")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return o, fmt.Errorf("resolve %s: %w", o.Path, err)
	}
	o.Path = path
	if o.PollInterval == 0 {
		o.PollInterval = DefaultPollInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.NewTicker == nil {
		o.NewTicker = func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		}
	}
	return o, nil
}

// FileReader reads the document that a File, or a mounted ConfigMap, keeps. It
// needs no write permission, takes no lock and creates nothing. All methods may
// be called from any goroutine.
type FileReader struct {
	o FileOptions
}

// OpenFileReader checks the options only: the file may appear later.
func OpenFileReader(o FileOptions) (*FileReader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open parameter document: %w", err)
	}
	return &FileReader{o: o}, nil
}

// Load reads the document: ErrNotFound if the file is not there, ErrInvalid if
// what it holds is refused, ErrStopped under the kill switch.
func (r *FileReader) Load(context.Context) (*Document, error) {
	_, d, err := r.load()
	return d, err
}

// load returns the bytes, too, as far as they could be read.
func (r *FileReader) load() ([]byte, *Document, error) {
	if err := r.stopped(); err != nil {
		return nil, nil, err
	}
	raw, err := readFile(r.o.Path, MaxDocumentBytes)
	if err != nil {
		return raw, nil, fmt.Errorf("load parameter document: %w", err)
	}
	d, err := Parse(raw)
	if err == nil {
		err = Accept(d, r.o.Pool)
	}
	if err != nil {
		return raw, nil, fmt.Errorf("load %s: %w", r.o.Path, err)
	}
	return raw, d, nil
}

// stopped returns a StoppedError if the kill switch is there, readable or not.
func (r *FileReader) stopped() error {
	path := r.o.Path + StopSuffix
	if _, err := os.Lstat(path); err != nil {
		return nil // what cannot be seen is told by reading the document
	}
	reason, err := readFile(path, maxStopBytes)
	if err != nil {
		reason = []byte(err.Error())
	}
	return fmt.Errorf("load parameter document: %w", &StoppedError{Where: "the file " + path, Reason: strings.TrimSpace(string(reason))})
}

// LoadCheckpoint reads the tuner's checkpoint, or returns ErrNotFound.
func (r *FileReader) LoadCheckpoint(context.Context) ([]byte, error) {
	raw, err := readFile(r.o.Path+CheckpointSuffix, MaxCheckpointBytes)
	if err == nil && len(raw) > MaxCheckpointBytes {
		err = refuse("", "a file of more than "+show(MaxCheckpointBytes)+" bytes", "less")
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	return raw, nil
}

// readFile reads at most one byte more than limit, of a regular file only: a
// pipe would block, and a device never end.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotFound)
	}
	if err != nil {
		return nil, explain(err, path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, explain(err, path)
	}
	if !info.Mode().IsRegular() {
		return nil, refuse("path", path, "a regular file, not one of mode "+info.Mode().String())
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, explain(err, path)
	}
	return raw, nil
}

// explain adds to an I/O error what to do about it.
func explain(err error, path string) error {
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free space on the file system of %s; what was stored before is unchanged", err, dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s is mounted read-only (as every mounted ConfigMap is): choose a directory on a writable volume", err, dir)
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%w: mount the directory %s rather than the single file, so that the file can be replaced atomically", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: let user %d read the file, and to write also create files in %s", err, os.Getuid(), dir)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: create the directory %s", err, dir)
	default:
		return err
	}
}
