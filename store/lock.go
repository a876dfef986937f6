package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockRetry is the wait between two attempts on a lock that another process
// holds; a write holds it for a few milliseconds.
const lockRetry = time.Millisecond

// lockFile takes an exclusive flock(2) on the file at path, creating it. Closing
// the file, or the end of the process, releases it.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isAt(f, path) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s, which another process holds: %w", path, context.Cause(ctx))
		}
	}
}

// isAt says whether path still names f: a lock on a file that was removed
// excludes nobody.
func isAt(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(held, found)
}
