package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

func TestWriteFailureKeepsTheOldValue(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dir string)
		says  string
	}{
		"full disk":           {fill, "free space on the file system of "},
		"read-only directory": {makeReadOnly, "is mounted read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountSmall(t)
			path := filepath.Join(dir, "pool.json")
			f := openFile(t, path)
			swap(t, f, 1)
			must(t, f.SaveCheckpoint(t.Context(), []byte("old")))
			test.spoil(t, dir)
			for what, err := range map[string]error{
				"swap":            f.Swap(t.Context(), document("pool", 2)),
				"save checkpoint": f.SaveCheckpoint(t.Context(), make([]byte, 1<<19)),
			} {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: got %v, want it to say %q", what, err, test.says)
				}
			}
			if d, err := f.Load(t.Context()); err != nil || d.Revision != 1 {
				t.Errorf("document: got %+v, %v, want revision 1", d, err)
			}
			if raw, err := f.LoadCheckpoint(t.Context()); err != nil || string(raw) != "old" {
				t.Errorf("checkpoint: got %q, %v, want the old one", raw, err)
			}
		})
	}
}

func TestHistoryOnAFullDisk(t *testing.T) {
	dir := mountSmall(t)
	h := openHistory(t, store.HistoryOptions{Path: filepath.Join(dir, "history.db")})
	appendAll(t, h, decision("a", 0))
	fill(t, dir)
	large := decision("a", 1)
	large.Reason = strings.Repeat("x", 1<<19)
	if err := h.Append(large); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free space on the file system of ") {
		t.Errorf("got %v, want no space and the remedy", err)
	}
	if got := query(t, h, store.Filter{}); len(got) != 1 {
		t.Errorf("got %d decisions, want the one before", len(got))
	}
	must(t, os.Remove(filepath.Join(dir, "ballast")))
	appendAll(t, h, decision("a", 2))
}

// mountSmall returns a file system of 256 KiB of its own. Without the right to
// mount one, the test is skipped; explain is tested without.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func makeReadOnly(t *testing.T, dir string) {
	t.Helper()
	must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
}

func fill(t *testing.T, dir string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 1<<20), 0o644)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
}
