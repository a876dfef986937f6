package tuner

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// MaxFile is how large a file with a secret or certificates may be, in bytes.
const MaxFile = 1 << 20

// ReadFile reads a file that a setting names. It is an error if the file is larger
// than limit bytes or is not a regular one, whose reading might never end: a pipe
// blocks who opens it, and a device has no end. Errors have nothing of its content.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file, but one of mode %s", path, info.Mode())
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%q is larger than %d bytes", path, limit)
	}
	return raw, nil
}
