package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// kindWatch follows the objects of one kind.
type kindWatch struct {
	kind                kind
	namespace, selector string
	client              metadata.ResourceInterface
	changed             func()
	log                 *slog.Logger
	informer            cache.SharedInformer

	mu     sync.Mutex
	failed string
}

func newKindWatch(k kind, namespace, selector string, client metadata.ResourceInterface, changed func(), log *slog.Logger) *kindWatch {
	w := &kindWatch{kind: k, namespace: namespace, selector: selector, client: client, changed: changed, log: log}
	w.informer = cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.list(ctx, o)
			if err != nil {
				w.heard(ctx, err)
			}
			return list, err
		},
		// Only a watch shows that all is well: without the verb "watch", lists succeed.
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			events, err := client.Watch(ctx, o)
			w.heard(ctx, err)
			return events, err
		},
	}, &metav1.PartialObjectMetadata{}, 0)
	return w
}

func (w *kindWatch) list(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	o.LabelSelector = w.selector
	return w.client.List(ctx, o)
}

func (w *kindWatch) run(ctx context.Context) {
	tell := func(any) { w.changed() }
	// These fail only on an informer that was started or stopped.
	_ = w.informer.SetTransform(withoutManagers)
	_ = w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // heard tells
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, now any) { tell(now) },
	})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
			w.changed()
		}
	}()
	w.informer.RunWithContext(ctx)
}

// withoutManagers keeps a hundred objects small.
func withoutManagers(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields = nil
	}
	return o, nil
}

// objects that are there, once all are known.
func (w *kindWatch) objects() []Object {
	if !w.informer.HasSynced() {
		return nil
	}
	var all []Object
	for _, o := range w.informer.GetStore().List() {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok {
			all = w.kind.appendObject(all, m)
		}
	}
	return all
}

func (w *kindWatch) trouble() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// heard takes note of how a request went. That a watch expired is its ordinary life.
func (w *kindWatch) heard(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	now := ""
	if err != nil {
		now = w.explain(err).Error()
	}
	w.mu.Lock()
	before := w.failed
	w.failed = now
	w.mu.Unlock()
	if now == before {
		return
	}
	if now != "" {
		w.log.Warn("pools cannot be discovered; those that were stay", "kind", w.kind.kind, "err", now)
	}
	w.changed()
}

// explain adds to an error of the API server what to do about it.
func (w *kindWatch) explain(err error) error {
	where := fmt.Sprintf("%ss in namespace %s", w.kind.kind, w.namespace)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("finding %s: %w: a Role must allow list and watch on %s, as deploy/components/discovery does", where, err, w.kind.resource.Resource)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("finding %s: %w: %s", where, err, w.kind.absent)
	}
	return fmt.Errorf("finding %s: %w", where, err)
}
