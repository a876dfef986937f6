package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cancelling ends a context when a text is written to it.
type cancelling struct {
	bytes.Buffer
	at     string
	cancel func()
}

func (c *cancelling) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.at) {
		c.cancel()
	}
	return c.Buffer.Write(b)
}

// An interrupted search leaves its best profile and says how to go on, and no
// report that took longer than the user was ready to wait.
func TestInterruptedFitLeavesItsBest(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &cancelling{at: "least", cancel: cancel}
	args := strings.Fields("calibrate --out best.json --report r.md --resume state.json --duration 5s --fit-seeds 1 --free stepBase --seed 3 --evaluations 500")
	code := execute(ctx, args, io.Discard, stderr)
	if code != exitFailure || !strings.Contains(stderr.String(), "evaluations; best.json has the best so far; go on with: kvtuner calibrate --duration 5s") ||
		!strings.Contains(stderr.String(), "--resume state.json --seed 3\n") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, name := range []string{"best.json", "state.json"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat("r.md"); err == nil {
		t.Error("a report was written")
	}
}

func TestInterruptedCheckHasNoResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := execute(ctx, []string{"calibrate", "--check", "--seeds", "1000", "--duration", "24h"}, &stdout, &stderr); code != exitFailure || stdout.Len() > 0 ||
		!strings.Contains(stderr.String(), "interrupted before the end") {
		t.Errorf("exit code %d, %q: %s", code, &stdout, &stderr)
	}
}

func TestFilesAreReadToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{1 << 20: "", 1<<20 - 1: "the file is larger than 0 MiB"} {
		b, err := fromFile(t.Context(), path, limit, io.ReadAll)
		if want == "" && (err != nil || len(b) != 1<<20) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("limit %d: read %d bytes, %v", limit, len(b), err)
		}
	}
}

// A pipe that nobody writes to does not hold the command up.
func TestSilentPipeIsNotWaitedFor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = fromFile(ctx, "/dev/null", 1, func(io.Reader) (string, error) {
		cancel()
		_, err := r.Read(make([]byte, 1))
		return "", err
	})
	if err != context.Canceled {
		t.Errorf("error %v; want the cancellation", err)
	}
}

func TestCommandLineCanBeRepeated(t *testing.T) {
	for in, want := range map[string]string{"plain-1.0/a,b": "plain-1.0/a,b", "": "''", "two words": "'two words'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := quoted(in); got != want {
			t.Errorf("%q is quoted %s; want %s", in, got, want)
		}
	}
	cmd := newCalibrateCommand()
	if err := cmd.ParseFlags([]string{"--check", "--reports", "a,b c", "--seeds=3", "--profile", "my fleet.json"}); err != nil {
		t.Fatal(err)
	}
	if got, want := commandLine(cmd), "calibrate --check --profile 'my fleet.json' --reports 'a,b c' --seeds 3"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}
