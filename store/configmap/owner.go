package configmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
)

// claim takes the pool over for this tuner, once: whoever had it finds its writes
// refused from then on, for what it has seen is out of date and the signature
// another's. A Store without an identity claims nothing.
func (s *Store) claim(ctx context.Context) error {
	if s.o.Identity == "" {
		return nil
	}
	if !s.claimed {
		if err := s.rewrite(ctx, func(*corev1.ConfigMap) error { return nil }); err != nil {
			return err
		}
	}
	if err := s.deposed(s.seen); err != nil {
		return err
	}
	return s.held(s.seen)
}

// deposed tells that another tuner has signed since this one took over.
func (s *Store) deposed(cm *corev1.ConfigMap) error {
	writer := cm.Annotations[WriterAnnotation]
	if !s.claimed || writer == "" || writer == s.o.Identity {
		return nil
	}
	return fmt.Errorf("%s: %w: %q, while this is %q: a pool has one tuner, stop the other or this", s.o, ErrTakenOver, writer, s.o.Identity)
}

// held tells that somebody applies the document from a manifest: what a tuner
// wrote would be undone, and it must not be fought over. One that was merely
// edited is free to be changed again.
func (r *Reader) held(cm *corev1.ConfigMap) error {
	for _, m := range cm.ManagedFields {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != FieldManager && r.owns(m.FieldsV1) {
			return fmt.Errorf("key %s of %s is %w: %q applies it from a manifest, and tuning pauses until it no longer does: take the key out of that manifest",
				r.o.Key, r.o, ErrHeld, m.Manager)
		}
	}
	return nil
}

// owns says whether a set of fields holds the document's.
func (r *Reader) owns(fields *metav1.FieldsV1) bool {
	if fields == nil {
		return false
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return false
	}
	var set map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &set); err != nil {
		return false
	}
	_, owned := set["f:data"]["f:"+r.o.Key]
	return owned
}

func missing(err error) bool { return errors.Is(err, store.ErrNotFound) }
