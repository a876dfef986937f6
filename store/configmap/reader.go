package configmap

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kvtuner/kvtuner/store"
)

// Reader reads the document that a Store keeps. It needs "get", and for Watch also
// "list" and "watch", on this one ConfigMap by name. All methods may be called
// from any goroutine.
type Reader struct {
	o Options
}

// OpenReader checks the options only: the ConfigMap may appear later.
func OpenReader(o Options) (*Reader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open parameter document: %w", err)
	}
	return &Reader{o: o}, nil
}

// Load reads the document from the API server: ErrNotFound if ConfigMap or key are
// not there, ErrInvalid if what it holds is refused, ErrStopped under the kill
// switch.
func (r *Reader) Load(ctx context.Context) (*store.Document, error) {
	cm, err := r.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("load parameter document: %w", err)
	}
	return r.document(cm)
}

// LoadCheckpoint reads the tuner's checkpoint, or returns ErrNotFound.
func (r *Reader) LoadCheckpoint(ctx context.Context) ([]byte, error) {
	cm, err := r.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	packed, found := cm.BinaryData[CheckpointKey]
	if !found {
		return nil, fmt.Errorf("load checkpoint: key %s of %s: %w", CheckpointKey, r.o, store.ErrNotFound)
	}
	checkpoint, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("load checkpoint from key %s of %s (remove the key to start the search afresh): %w", CheckpointKey, r.o, err)
	}
	return checkpoint, nil
}

func (r *Reader) configMaps() corev1client.ConfigMapInterface {
	return r.o.Client.ConfigMaps(r.o.Namespace)
}

func (r *Reader) get(ctx context.Context) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	cm, err := r.configMaps().Get(ctx, r.o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, r.explain(err)
	}
	return cm, nil
}

// document is what the ConfigMap says.
func (r *Reader) document(cm *corev1.ConfigMap) (*store.Document, error) {
	if err := r.stopped(cm); err != nil {
		return nil, fmt.Errorf("load parameter document: %w", err)
	}
	raw, found := r.raw(cm)
	if !found {
		return nil, fmt.Errorf("load parameter document: key %s of %s: %w", r.o.Key, r.o, store.ErrNotFound)
	}
	d, err := store.Parse(raw)
	if err == nil {
		err = store.Accept(d, r.o.Pool)
	}
	if err != nil {
		return nil, fmt.Errorf("load key %s of %s: %w", r.o.Key, r.o, err)
	}
	return d, nil
}

// raw is the document as it stands. What kubectl takes for binary ends up in
// binaryData, and is refused when parsed.
func (r *Reader) raw(cm *corev1.ConfigMap) ([]byte, bool) {
	if text, found := cm.Data[r.o.Key]; found {
		return []byte(text), true
	}
	raw, found := cm.BinaryData[r.o.Key]
	return raw, found
}

func (r *Reader) stopped(cm *corev1.ConfigMap) error {
	reason, found := cm.Data[StopKey]
	if _, binary := cm.BinaryData[StopKey]; !found && !binary {
		return nil
	}
	return &store.StoppedError{Where: fmt.Sprintf("key %q of %s", StopKey, r.o), Reason: reason}
}

// explain adds to an error of the API server what to do about it.
func (r *Reader) explain(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", r.o, store.ErrNotFound)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: a Role must allow it by name, as those of deploy/ do", err)
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInvalid(err):
		return fmt.Errorf("%w: a ConfigMap holds 1 MiB at most: remove keys that are not kvtuner's", err)
	}
	return fmt.Errorf("%s: %w", r.o, err)
}

// pack compresses a checkpoint: it is repetitive, and a ConfigMap small. Equal
// checkpoints give equal bytes.
func pack(checkpoint []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(checkpoint); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpack reads no more than a checkpoint may have.
func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: not gzip: %w", store.ErrInvalid, err)
	}
	checkpoint, err := io.ReadAll(io.LimitReader(r, store.MaxCheckpointBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return checkpoint, errors.Join(store.AcceptCheckpoint(checkpoint))
}
