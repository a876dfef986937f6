package configmap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
)

// attempts at a write that meets other writers of the same ConfigMap.
const attempts = 5

// edit changes what is to be written, or says why that must not be.
type edit func(*corev1.ConfigMap) error

// inTurn calls do while no other goroutine asks the API server.
func (s *Store) inTurn(ctx context.Context, do func() error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		return do()
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", s.o, context.Cause(ctx))
	}
}

// change edits the ConfigMap, in turn.
func (s *Store) change(ctx context.Context, do edit) error {
	return s.inTurn(ctx, func() error { return s.rewrite(ctx, do) })
}

// rewrite edits what was last seen and writes it, which the API server takes only
// if nobody has written since. If somebody has, or the edit was refused on what
// may be out of date, it is done again on what is there now.
func (s *Store) rewrite(ctx context.Context, do edit) error {
	fresh := false
	for range attempts {
		if fresh || s.seen == nil {
			if err := s.look(ctx); err != nil {
				return err
			}
			fresh = true
		}
		next, err := s.edited(do)
		if err == nil {
			err = s.write(ctx, next)
			if err == nil || !outdated(err) {
				return err
			}
		} else if fresh {
			return err
		}
		fresh = true
	}
	return fmt.Errorf("%w: %s was changed by others %d times in the meantime", store.ErrConflict, s.o, attempts)
}

// look at what is there now.
func (s *Store) look(ctx context.Context) error {
	cm, err := s.get(ctx)
	if missing(err) {
		s.seen = nil
		return nil
	}
	if err == nil {
		s.seen = cm
		s.uid.Store(cm.UID)
	}
	return err
}

// edited is a copy of what was last seen, changed and signed.
func (s *Store) edited(do edit) (*corev1.ConfigMap, error) {
	next := s.seen.DeepCopy()
	if next == nil && s.o.Existing {
		return nil, fmt.Errorf("%s: %w", s.o, store.ErrNotFound)
	}
	if next == nil {
		next = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.o.Namespace, Name: s.o.Name}}
	}
	if err := s.deposed(next); err != nil {
		return nil, err
	}
	if s.o.Identity != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, WriterAnnotation, s.o.Identity)
	}
	return next, do(next)
}

func (s *Store) write(ctx context.Context, next *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	var written *corev1.ConfigMap
	var err error
	if s.seen == nil {
		written, err = s.configMaps().Create(ctx, next, metav1.CreateOptions{FieldManager: FieldManager})
	} else {
		written, err = s.configMaps().Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	switch {
	case err == nil:
		s.seen, s.claimed = written, s.o.Identity != ""
		s.uid.Store(written.UID)
		return nil
	case s.seen == nil && apierrors.IsForbidden(err):
		return fmt.Errorf("%w: make the ConfigMap (kubectl create configmap -n %s %s), which a Role by name cannot allow a tuner", err, s.o.Namespace, s.o.Name)
	case s.seen == nil && apierrors.IsNotFound(err):
		return fmt.Errorf("%w: make the namespace", err)
	case outdated(err):
		return err
	}
	return s.explain(err)
}

// outdated tells that a write was made from what is no longer there.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
