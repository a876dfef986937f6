package configmap

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/store"
)

// Errors of a Store, beside those of package store.
var (
	// ErrTakenOver means that another tuner took the pool over from this one.
	ErrTakenOver = errors.New("another tuner has taken over")
	// ErrHeld means that someone declares the document's content by server-side
	// apply, and would undo every change.
	ErrHeld = errors.New("held by another field manager")
)

// Store keeps one pool's document, checkpoint and status. It needs "get" and
// "update" on the one ConfigMap by name, and "create" only if that is to be made by
// the tuner. All methods may be called from any goroutine.
type Store struct {
	*Reader
	// turn lets one goroutine at a time ask the API server.
	turn chan struct{}
	seen *corev1.ConfigMap // as last read or written; nil if there was none
	// claimed tells that this Store has taken the ConfigMap over.
	claimed bool
	uid     atomic.Value // types.UID, of seen
}

// Reference names the ConfigMap, for Events about it.
func (s *Store) Reference() *corev1.ObjectReference {
	uid, _ := s.uid.Load().(types.UID)
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: s.o.Namespace, Name: s.o.Name, UID: uid}
}

// Open checks the options; it sends no request.
func Open(o Options) (*Store, error) {
	r, err := OpenReader(o)
	if err != nil {
		return nil, err
	}
	return &Store{Reader: r, turn: make(chan struct{}, 1)}, nil
}

// Load reads the document as Reader.Load does. With an Identity, the first load
// takes the pool over; once another tuner has done that, it returns ErrTakenOver,
// and while someone else declares the document, ErrHeld.
func (s *Store) Load(ctx context.Context) (*store.Document, error) {
	var d *store.Document
	err := s.inTurn(ctx, func() error {
		if err := s.look(ctx); err != nil {
			return fmt.Errorf("load parameter document: %w", err)
		}
		if s.seen == nil {
			return fmt.Errorf("load parameter document: %s: %w", s.o, store.ErrNotFound)
		}
		if err := s.claim(ctx); err != nil {
			return fmt.Errorf("take over the pool: %w", err)
		}
		var err error
		d, err = s.document(s.seen)
		return err
	})
	return d, err
}

// Swap stores next if its revision follows the stored one: stored + 1, or any when
// there is none. Otherwise it returns a ConflictError. A document that is not
// valid is refused with ErrInvalid, as is a write over one that cannot be
// understood: somebody has to look at that first.
func (s *Store) Swap(ctx context.Context, next *store.Document) error {
	if err := store.Accept(next, s.o.Pool); err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	raw, err := store.Format(next)
	if err != nil {
		return err
	}
	var base *store.Document // what next was made from, as far as is known
	err = s.change(ctx, func(cm *corev1.ConfigMap) error {
		stored, err := s.document(cm)
		switch {
		case errors.Is(err, store.ErrInvalid):
			return fmt.Errorf("%w; repair the document, or remove its key", err)
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		case base != nil && stored != nil && stored.Revision == base.Revision && !stored.Equal(base):
			return fmt.Errorf("someone edited revision %d: %w", stored.Revision, &store.ConflictError{Stored: stored.Revision, Next: next.Revision})
		}
		base = stored
		delete(cm.BinaryData, s.o.Key)
		setText(cm, s.o.Key, string(raw))
		return errors.Join(store.Follows(stored, next), s.held(cm))
	})
	if err != nil {
		return fmt.Errorf("store parameter document: %w", err)
	}
	return nil
}

// SaveCheckpoint replaces the tuner's checkpoint; see store.MaxCheckpointBytes. On
// an error the old one stays. A tuner that was deposed cannot save.
func (s *Store) SaveCheckpoint(ctx context.Context, checkpoint []byte) error {
	if err := store.AcceptCheckpoint(checkpoint); err != nil {
		return err
	}
	packed, err := pack(checkpoint)
	if err == nil {
		err = s.change(ctx, func(cm *corev1.ConfigMap) error {
			if cm.BinaryData == nil {
				cm.BinaryData = map[string][]byte{}
			}
			cm.BinaryData[CheckpointKey] = packed
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// SaveStatus replaces the status, a text for people. Where there is no ConfigMap it
// makes none and returns ErrNotFound.
func (s *Store) SaveStatus(ctx context.Context, text string) error {
	err := s.change(ctx, func(cm *corev1.ConfigMap) error {
		if cm.ResourceVersion == "" {
			return fmt.Errorf("%s: %w", s.o, store.ErrNotFound)
		}
		setText(cm, StatusKey, text)
		return nil
	})
	if err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	return nil
}

func setText(cm *corev1.ConfigMap, key, text string) {
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[key] = text
}
