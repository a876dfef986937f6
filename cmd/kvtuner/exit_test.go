package main

import (
	"bytes"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// full is the standard output on a disk that is.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}

// What could not be written was not said, which a script must learn: it is no
// success, and not the fault of the command line.
func TestOutputThatFails(t *testing.T) {
	for _, line := range []string{
		"", "--help", "status --help", "help status", "help completion bash", "completion", "--version", "version", "version --output json",
	} {
		t.Run(line, func(t *testing.T) {
			var stderr bytes.Buffer
			code := execute(t.Context(), strings.Fields(line), full{}, &stderr)
			if want := "kvtuner: write /dev/stdout: no space left on device\n"; code != exitFailure || stderr.String() != want {
				t.Errorf("exit code %d and %q, want %d and %q", code, stderr.String(), exitFailure, want)
			}
		})
	}
}
