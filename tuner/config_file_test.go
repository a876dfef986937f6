package tuner

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte{'x'}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link") // as a mounted Secret is
	if err := os.Symlink(write("target", 3), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, refused string
		size          int
	}{
		"empty":        {path: write("empty", 0)},
		"at the limit": {path: write("full", 8), size: 8},
		"above it":     {path: write("large", 9), refused: `large" is larger than 8 bytes`},
		"a link":       {path: link, size: 3},
		"a pipe":       {path: pipe, refused: "not a regular file"},
		"a device":     {path: os.DevNull, refused: "not a regular file"},
		"a folder":     {path: dir, refused: "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadFile(c.path, 8)
			if len(got) != c.size || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("ReadFile(%s) = %d bytes, %v; want %d bytes and an error with %q", c.path, len(got), err, c.size, c.refused)
			}
		})
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is not there: %v, want %v", err, fs.ErrNotExist)
	}
}
