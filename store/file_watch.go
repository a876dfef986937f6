package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch returns the current state first, ErrNotFound included, then each
// change. A slow reader gets the latest only. A file that cannot be read or
// understood gives an Update with Err, and the watch goes on; it follows the
// file through removal, atomic replacement and a mounted ConfigMap's change of
// links. The channel is closed when ctx ends.
func (r *FileReader) Watch(ctx context.Context) <-chan Update {
	w := &fileWatch{reader: r, mailbox: newMailbox(), dir: filepath.Dir(r.o.Path)}
	w.open()
	w.look()
	ticks, stop := r.o.NewTicker(r.o.PollInterval)
	go func() {
		defer w.mailbox.close()
		defer w.close()
		defer stop()
		w.run(ctx, ticks)
	}()
	return w.mailbox.ch
}

// fileWatch looks at the file again whenever something happens in its
// directory, and on every tick.
type fileWatch struct {
	reader  *FileReader
	mailbox *mailbox
	dir     string

	notify  *fsnotify.Watcher // nil: ticks only
	watched os.FileInfo       // the directory that notify is on, nil if none
	seen    string            // what the last update showed
}

func (w *fileWatch) open() {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.reader.o.Logger.Warn("No file notifications: changes are seen by polling only",
			"path", w.reader.o.Path, "interval", w.reader.o.PollInterval, "err", err)
		return
	}
	w.notify = notify
	w.follow()
}

func (w *fileWatch) close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

func (w *fileWatch) run(ctx context.Context, ticks <-chan time.Time) {
	var events chan fsnotify.Event
	var failures chan error
	if w.notify != nil {
		events, failures = w.notify.Events, w.notify.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case err := <-failures:
			w.reader.o.Logger.Warn("File notification failed", "path", w.reader.o.Path, "err", err)
		case <-ticks:
		}
		// The watch before the look: what changes after the look is notified.
		w.follow()
		w.look()
	}
}

// follow puts the watch on the directory that is at the path, which may have
// been replaced.
func (w *fileWatch) follow() {
	if w.notify == nil {
		return
	}
	found, err := os.Stat(w.dir)
	if err == nil && w.watches(found) {
		return
	}
	if w.watched != nil {
		// It fails if the directory is gone, and the watch with it.
		_ = w.notify.Remove(w.dir)
		w.watched = nil
	}
	if err != nil {
		return
	}
	if err := w.notify.Add(w.dir); err != nil {
		w.reader.o.Logger.Warn("No file notifications: changes are seen by polling only",
			"path", w.reader.o.Path, "interval", w.reader.o.PollInterval, "err", err)
		return
	}
	w.watched = found
}

// watches says whether the watch is on found. Both checks are needed: a new
// directory can get the identity of a removed one, and a watch stays on a
// directory that was moved away.
func (w *fileWatch) watches(found os.FileInfo) bool {
	return w.watched != nil && os.SameFile(found, w.watched) && slices.Contains(w.notify.WatchList(), w.dir)
}

// look sends what is there if it differs from what was sent last.
func (w *fileWatch) look() {
	raw, d, err := w.reader.load()
	seen := "document " + string(raw)
	if err != nil {
		seen = "error " + err.Error() + string(raw)
	}
	if seen == w.seen {
		return
	}
	w.seen = seen
	w.mailbox.put(Update{Document: d, Err: err})
}
