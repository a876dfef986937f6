package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestExplain(t *testing.T) {
	for errno, says := range map[syscall.Errno]string{
		syscall.ENOSPC: "free space on the file system of /data",
		syscall.EDQUOT: "free space on the file system of /data",
		syscall.EROFS:  "choose a directory on a writable volume",
		syscall.EBUSY:  "mount the directory /data rather than the single file",
		syscall.EACCES: fmt.Sprintf("let user %d read the file", os.Getuid()),
		syscall.ENOENT: "create the directory /data",
		syscall.EIO:    "input/output error",
	} {
		err := explain(&os.PathError{Op: "open", Path: "/data/pool.json", Err: errno}, "/data/pool.json")
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: got %v, want it to say %q", errno, err, says)
		}
	}
}
