package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

const (
	writerPathVariable = "KVTUNER_TEST_WRITER_PATH"
	kills              = 60
)

// TestKilledWriter kills a process that writes without pause, at random
// instants. Whatever it had reported as stored must be there, whole.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pool.json")
	rng := rand.New(rand.NewPCG(1, 2))
	var stored int64
	for i := range kills {
		reported := killWriter(t, path, rng)
		d, err := openFile(t, path).Load(t.Context())
		if err != nil {
			t.Fatalf("after kill %d: %v", i+1, err)
		}
		if d.Revision < max(reported, stored) || d.Baseline.MinExternalReusableTokens != store.Tokens(d.Revision) {
			t.Fatalf("after kill %d: got %+v, want revision %d or more", i+1, d, max(reported, stored))
		}
		checkpoint, err := openFile(t, path).LoadCheckpoint(t.Context())
		if err != nil || !wholeCheckpoint(checkpoint) {
			t.Fatalf("after kill %d: checkpoint of %d bytes is torn, %v", i+1, len(checkpoint), err)
		}
		stored = d.Revision
	}
	if left := files(t, dir); len(left) > 3 {
		t.Errorf("%d kills left %q, want the document, its checkpoint and its lock", kills, left)
	}
	t.Logf("%d kills, %d revisions", kills, stored)
}

// killWriter starts a writer, kills it a moment after a few writes, and returns
// the last revision it reported.
func killWriter(t *testing.T, path string, rng *rand.Rand) (reported int64) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), writerPathVariable+"="+path)
	writer.Stderr = os.Stderr
	out, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	writes := 1 + rng.IntN(5)
	moment := time.Duration(rng.Int64N(int64(10 * time.Millisecond)))
	var kill *time.Timer
	for lines := bufio.NewScanner(out); lines.Scan(); writes-- {
		if reported, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
			t.Fatal(err)
		}
		if writes == 0 {
			kill = time.AfterFunc(moment, func() { writer.Process.Kill() })
		}
	}
	if kill == nil {
		t.Fatal("the writer ended by itself")
	}
	if err := writer.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("writer: %v, want it killed", err)
	}
	return reported
}

// writeForever is the process to kill: it reports each revision once stored.
func writeForever(path string) {
	f, err := store.OpenFile(store.FileOptions{Path: path, Pool: "pool"})
	for err == nil {
		err = writeOnce(f)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func writeOnce(f *store.File) error {
	ctx := context.Background()
	var revision int64
	d, err := f.Load(ctx)
	switch {
	case err == nil:
		revision = d.Revision
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := f.SaveCheckpoint(ctx, checkpointOf(revision+1)); err != nil {
		return err
	}
	if err := f.Swap(ctx, document("pool", revision+1)); err != nil {
		return err
	}
	_, err = fmt.Println(revision + 1)
	return err
}

// checkpointOf differs in length and content from one revision to the next, so
// that a mixture of two shows.
func checkpointOf(revision int64) []byte {
	line := fmt.Sprintf("%d\n", revision)
	return []byte(strings.Repeat(line, int(1+revision%7)*2000))
}

func wholeCheckpoint(raw []byte) bool {
	first, _, found := strings.Cut(string(raw), "\n")
	revision, err := strconv.ParseInt(first, 10, 64)
	return found && err == nil && string(raw) == string(checkpointOf(revision))
}

// files lists what is below dir, without directories.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
