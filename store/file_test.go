package store_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/storetest"
)

// manualTicks never ticks unless told to, so that a test knows what woke the
// watch.
func manualTicks(ch chan time.Time) func(time.Duration) (<-chan time.Time, func()) {
	return func(time.Duration) (<-chan time.Time, func()) { return ch, func() {} }
}

// watchFile watches path; ticks may be nil for none.
func watchFile(t *testing.T, path string, ticks chan time.Time) <-chan store.Update {
	t.Helper()
	r, err := store.OpenFileReader(store.FileOptions{
		Path:      path,
		Logger:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		NewTicker: manualTicks(ticks),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Watch(t.Context())
}

func formatted(t *testing.T, revision int64) string {
	t.Helper()
	raw, err := store.Format(document("pool", revision))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await takes updates until one is of revision, or the error: a writer that is
// not atomic shows what lies between.
func await(t *testing.T, ch <-chan store.Update, revision int64, target error) {
	t.Helper()
	for u := range ch {
		if u.Document != nil && u.Err != nil {
			t.Fatalf("got both in %+v", u)
		}
		if target == nil && u.Err == nil && u.Document.Revision == revision {
			return
		}
		if target != nil && errors.Is(u.Err, target) {
			return
		}
	}
	t.Fatal("the watch ended")
}

func TestWatchFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	ch := watchFile(t, path, nil)
	storetest.WantUpdate(t, ch, 0, store.ErrNotFound)

	write(t, path, formatted(t, 1))
	await(t, ch, 1, nil)

	write(t, path, formatted(t, 2)[:100])
	await(t, ch, 0, store.ErrInvalid)
	write(t, path, formatted(t, 2))
	await(t, ch, 2, nil)

	must(t, os.Remove(path))
	await(t, ch, 0, store.ErrNotFound)
	write(t, path, formatted(t, 3))
	await(t, ch, 3, nil)

	write(t, path+".new", formatted(t, 4))
	must(t, os.Rename(path+".new", path))
	await(t, ch, 4, nil)
}

// TestWatchFollowsAConfigMap does what the kubelet does: the file is a link
// through ..data, which is replaced in one rename.
func TestWatchFollowsAConfigMap(t *testing.T) {
	dir := t.TempDir()
	publish := func(name, content string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		write(t, filepath.Join(dir, name, "pool.json"), content)
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..2026_1", formatted(t, 1))
	path := filepath.Join(dir, "pool.json")
	must(t, os.Symlink(filepath.Join("..data", "pool.json"), path))

	ch := watchFile(t, path, nil)
	storetest.WantUpdate(t, ch, 1, nil)
	publish("..2026_2", formatted(t, 2))
	await(t, ch, 2, nil)
	publish("..2026_3", "{")
	await(t, ch, 0, store.ErrInvalid)
	publish("..2026_4", formatted(t, 4))
	await(t, ch, 4, nil)
}

func TestWatchFollowsAReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "pool.json")
	ticks := make(chan time.Time)
	ch := watchFile(t, path, ticks)
	storetest.WantUpdate(t, ch, 0, store.ErrNotFound)

	for round := range int64(3) {
		must(t, os.Mkdir(dir, 0o755))
		ticks <- exampleTime // Nothing tells that a directory has come.
		ticks <- exampleTime // The first tick is dealt with.
		write(t, path, formatted(t, 2*round+1))
		await(t, ch, 2*round+1, nil)
		write(t, path, formatted(t, 2*round+2))
		await(t, ch, 2*round+2, nil)
		if round == 1 {
			must(t, os.Rename(dir, dir+".old"))
		} else {
			must(t, os.RemoveAll(dir))
		}
		ticks <- exampleTime
		await(t, ch, 0, store.ErrNotFound)
	}

	// Replaced between two looks: the new directory may even have the identity
	// of the old one.
	must(t, os.Mkdir(dir, 0o755))
	ticks <- exampleTime
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	ticks <- exampleTime
	ticks <- exampleTime
	write(t, path, formatted(t, 9))
	await(t, ch, 9, nil)
}

// TestWatchPolls changes what the directory's notifications cannot show: the
// file at the end of a link.
func TestWatchPolls(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "target.json")
	path := filepath.Join(t.TempDir(), "pool.json")
	write(t, elsewhere, formatted(t, 1))
	must(t, os.Symlink(elsewhere, path))
	ticks := make(chan time.Time)
	ch := watchFile(t, path, ticks)
	storetest.WantUpdate(t, ch, 1, nil)
	write(t, elsewhere, formatted(t, 2))
	ticks <- exampleTime
	await(t, ch, 2, nil)
}

// TestWatchIsQuiet: no change, no update.
func TestWatchIsQuiet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	write(t, path, formatted(t, 1))
	ticks := make(chan time.Time)
	ch := watchFile(t, path, ticks)
	storetest.WantUpdate(t, ch, 1, nil)
	write(t, path+".other", "x")
	must(t, os.Chtimes(path, exampleTime, exampleTime))
	for range 10 {
		ticks <- exampleTime
	}
	select {
	case u := <-ch:
		t.Errorf("got %+v, want nothing", u)
	default:
	}
}

func TestFileRefusesToOpen(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link.json")
	must(t, os.Symlink("target.json", link))
	pipe := filepath.Join(dir, "pipe.json")
	must(t, syscall.Mkfifo(pipe, 0o644))
	for name, test := range map[string]struct {
		options store.FileOptions
		says    string
	}{
		"no path":           {store.FileOptions{}, `path: "" is not allowed`},
		"negative interval": {store.FileOptions{Path: link, PollInterval: -1}, "poll interval: -1ns is not allowed"},
		"a link":            {store.FileOptions{Path: link}, "want a regular file to write to"},
		"a pipe":            {store.FileOptions{Path: pipe}, "want a regular file to write to"},
		"a directory":       {store.FileOptions{Path: dir}, "want a regular file to write to"},
		"no directory":      {store.FileOptions{Path: filepath.Join(dir, "none", "pool.json")}, "create the directory " + filepath.Join(dir, "none")},
	} {
		if _, err := store.OpenFile(test.options); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, test.says)
		}
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("a refused open left %q", got)
	}
}

func TestReaderTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pool.json")
	r, err := store.OpenFileReader(store.FileOptions{Path: path, Pool: "pool"})
	must(t, err)
	for content, target := range map[string]error{formatted(t, 1): nil, "{": store.ErrInvalid, strings.Repeat(" ", 2<<20): store.ErrInvalid} {
		write(t, path, content)
		if _, err := r.Load(t.Context()); !errors.Is(err, target) {
			t.Errorf("got %v, want %v", err, target)
		}
		if _, err := r.LoadCheckpoint(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if diff := cmp.Diff([]string{path}, files(t, dir)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if raw, _ := os.ReadFile(path); string(raw) != content {
			t.Error("the document was changed")
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.json")
	must(t, syscall.Mkfifo(pipe, 0o644))
	other := filepath.Join(dir, "other.json")
	write(t, other, formatted(t, 1))
	for path, field := range map[string]string{pipe: "path", dir: "path", "/dev/zero": "path", other: "pool"} {
		r, err := store.OpenFileReader(store.FileOptions{Path: path, Pool: "mine"})
		must(t, err)
		_, err = r.Load(t.Context())
		wantField(t, path, err, field)
	}
}

// TestSwapOverABrokenFile keeps what a person may want to repair.
func TestSwapOverABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	f := openFile(t, path)
	write(t, path, "{")
	err := f.Swap(t.Context(), document("pool", 1))
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "repair the file, or remove it") {
		t.Errorf("got %v, want ErrInvalid and the remedy", err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "{" {
		t.Errorf("the file now holds %q", raw)
	}
}

func TestOpenCleansUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	swap(t, openFile(t, path), 1)
	left := filepath.Join(path+".tmp", ".pool.json123")
	write(t, left, "torn")
	swap(t, openFile(t, path), 2)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the leftover removed", err)
	}
}

// TestLockRemoved: a writer that holds a lock file which was removed must not
// let another one in beside it.
func TestLockRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	f := openFile(t, path)
	swap(t, f, 1)
	must(t, os.Remove(path+".lock"))
	must(t, os.RemoveAll(path+".tmp"))
	swap(t, f, 2)
	swap(t, openFile(t, path), 3)
}

func TestKillSwitch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := filepath.Join(t.TempDir(), "pool.json")
	f := openFile(t, path)
	swap(t, f, 1)
	updates := f.Watch(ctx)
	storetest.WantUpdate(t, updates, 1, nil)
	if err := os.WriteFile(path+store.StopSuffix, []byte("incident 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// It may be seen while it is still empty.
	for u := range updates {
		var stopped *store.StoppedError
		if !errors.As(u.Err, &stopped) || !errors.Is(u.Err, store.ErrStopped) {
			t.Fatalf("got %+v, want it stopped", u)
		}
		if stopped.Reason == "incident 7" {
			break
		}
	}
	if err := f.Swap(ctx, document("pool", 2)); !errors.Is(err, store.ErrStopped) || !strings.Contains(err.Error(), path+".stop") {
		t.Errorf("swap: got %v, want it stopped", err)
	}
	if err := os.Remove(path + store.StopSuffix); err != nil {
		t.Fatal(err)
	}
	storetest.WantUpdate(t, updates, 1, nil)
	swap(t, f, 2)
}
