package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Sentinels of the history.
var (
	// ErrLocked means another process holds the history.
	ErrLocked = errors.New("locked by another process")
	// ErrCorrupt means the history's file cannot be read. It is never removed.
	ErrCorrupt = errors.New("corrupt")
)

// Defaults of HistoryOptions.
const (
	DefaultMaxPerPool  = 5000
	DefaultMaxAge      = 90 * 24 * time.Hour
	DefaultLockTimeout = time.Second
)

// MaxDecisionBytes is the largest decision, as JSON, that a history takes.
const MaxDecisionBytes = 1 << 20

// HistoryOptions say where the history is and how much of it is kept. Of each
// pool, decisions beyond either limit are dropped, oldest first, when that pool
// gets another one.
type HistoryOptions struct {
	// Path of the database file. Its directory must exist.
	Path string
	// MaxPerPool decisions are kept; 0 is DefaultMaxPerPool.
	MaxPerPool int
	// MaxAge of a decision by Now; 0 is DefaultMaxAge.
	MaxAge time.Duration
	// Now is the clock that decisions' times are compared with; nil is time.Now.
	Now func() time.Time
	// ReadOnly shares the file with other readers and never changes it.
	ReadOnly bool
	// LockTimeout is how long to wait for another process; 0 is
	// DefaultLockTimeout.
	LockTimeout time.Duration
}

func (o HistoryOptions) withDefaults() (HistoryOptions, error) {
	switch {
	case o.Path == "":
		return o, refuse("path", o.Path, "the path of a file")
	case o.MaxPerPool < 0:
		return o, refuse("max per pool", o.MaxPerPool, "0 for the default, or more")
	case o.MaxAge < 0:
		return o, refuse("max age", o.MaxAge, "0 for the default, or more")
	case o.LockTimeout < 0:
		return o, refuse("lock timeout", o.LockTimeout, "0 for the default, or more")
	}
	if o.MaxPerPool == 0 {
		o.MaxPerPool = DefaultMaxPerPool
	}
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// History keeps the decisions of all pools in one database file. One process
// writes it and holds it while it runs. All methods may be called from any
// goroutine.
//
// The file is a bbolt database: bucket "decisions", in it a bucket per pool, in
// it "byTime" (time and ID to the decision as JSON) and "byID" (ID to the key in
// byTime).
type History struct {
	o  HistoryOptions
	db *bbolt.DB
	// broken is set once the database panicked: it may hold its locks for ever.
	broken atomic.Pointer[error]
}

var (
	bucketDecisions = []byte("decisions")
	bucketByTime    = []byte("byTime")
	bucketByID      = []byte("byID")
)

// OpenHistory opens or, unless ReadOnly, creates the file. It returns ErrLocked
// if another process holds it, ErrCorrupt if it cannot be read and ErrNotFound
// if there is none to read.
func OpenHistory(o HistoryOptions) (*History, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	h := &History{o: o}
	if err := h.guard("open", h.open); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *History) open() error {
	switch info, err := os.Stat(h.o.Path); {
	case err != nil:
	case !info.Mode().IsRegular():
		return refuse("path", h.o.Path, "the file of a history, such as kvtuner-history.db; this is a folder or a device")
	case h.o.ReadOnly && info.Size() == 0:
		return fmt.Errorf("the file is empty: %w", ErrNotFound)
	}
	db, err := bbolt.Open(h.o.Path, 0o644, &bbolt.Options{Timeout: h.o.LockTimeout, ReadOnly: h.o.ReadOnly})
	if err != nil {
		return classify(err)
	}
	h.db = db
	if h.o.ReadOnly {
		return nil
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketDecisions)
		return err
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// classify tells a file that is no database, for which bbolt has many errors,
// from one that could not be read.
func classify(err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return ErrLocked
	case errors.As(err, &errno):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
}

// Close releases the file. After ErrCorrupt that may take until the process
// ends; the error is returned again.
func (h *History) Close() error {
	return h.guard("close", h.db.Close)
}

// Append keeps d, on disk when it returns. Appending the same decision again
// does nothing; another one of the same ID is refused with ErrConflict. A
// decision that is not valid is refused with ErrInvalid.
func (h *History) Append(d Decision) error {
	value, err := encodeDecision(d)
	if err != nil {
		return fmt.Errorf("append to history: %w", err)
	}
	return h.guard("append to", func() error {
		return h.db.Update(func(tx *bbolt.Tx) error { return h.append(tx, d, value) })
	})
}

func encodeDecision(d Decision) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	d.Time = d.Time.UTC()
	value, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode decision %s: %w", d.ID, err)
	}
	if len(value) > MaxDecisionBytes {
		return nil, refuse("evidence", fmt.Sprintf("a decision of %d bytes", len(value)), fmt.Sprintf("at most %d bytes: keep fewer samples", MaxDecisionBytes))
	}
	return value, nil
}

func (h *History) append(tx *bbolt.Tx, d Decision, value []byte) error {
	p, err := createPool(tx, d.Pool)
	if err != nil {
		return err
	}
	if key := p.byID.Get([]byte(d.ID)); key != nil {
		if bytes.Equal(p.byTime.Get(key), value) {
			return nil
		}
		return fmt.Errorf("decision %s of pool %s is there with other content: %w", d.ID, d.Pool, ErrConflict)
	}
	if err := p.put(d, value); err != nil {
		return err
	}
	return p.prune(h.o.MaxPerPool, h.o.Now().Add(-h.o.MaxAge))
}

// guard names what was being done and how to fix it, and turns the panic or
// fault of a database file that contradicts itself into ErrCorrupt, for good.
func (h *History) guard(doing string, do func() error) (err error) {
	if broken := h.broken.Load(); broken != nil {
		return *broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = h.corrupt(doing, p)
			h.broken.Store(&err)
		}
	}()
	return h.explain(doing, do())
}

func (h *History) explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLocked):
		return fmt.Errorf("%s history %s: %w, most likely a running kvtuner: ask that one over HTTP, or stop it first", doing, h.o.Path, ErrLocked)
	case errors.Is(err, ErrCorrupt):
		return h.corrupt(doing, err)
	case h.o.ReadOnly && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s history %s: %w", doing, h.o.Path, ErrNotFound)
	default:
		return fmt.Errorf("%s history %s: %w", doing, h.o.Path, explain(err, h.o.Path))
	}
}

func (h *History) corrupt(doing string, cause any) error {
	return fmt.Errorf("%s history %s: %w (%v): move the file away, and a new one is started; only past decisions are lost, not the parameters or what was learnt", doing, h.o.Path, ErrCorrupt, cause)
}
