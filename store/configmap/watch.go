package configmap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kvtuner/kvtuner/store"
)

// Watch returns the current state first, ErrNotFound included, then each change,
// as the API server tells of it. A slow reader gets the latest only. What cannot
// be read or understood gives an Update with Err, and the watch goes on: it
// resumes where it was cut, reads anew where that has expired, and waits ever
// longer, up to a minute, while the API server does not answer. The channel is
// closed when ctx ends.
//
// Watch itself waits for the first answer, at most Options.Timeout.
func (r *Reader) Watch(ctx context.Context) <-chan store.Update {
	w := &watcher{reader: r, news: make(chan news), out: make(chan store.Update)}
	first, err := r.Load(ctx)
	go w.forward(ctx, store.Update{Document: first, Err: err})
	go w.follow(ctx)
	return w.out
}

// watcher turns the events of one ConfigMap into updates.
type watcher struct {
	reader *Reader
	news   chan news
	out    chan store.Update
}

// news is an update; passing ones are about the watch and not the ConfigMap, and
// must not displace one that is not read yet.
type news struct {
	store.Update
	passing bool
}

// forward sends the latest update that differs from the one before.
func (w *watcher) forward(ctx context.Context, latest store.Update) {
	defer close(w.out)
	out := w.out
	for {
		select {
		case <-ctx.Done():
			return
		case out <- latest:
			out = nil // until there is another
		case next := <-w.news:
			if unread := out != nil; !same(latest, next.Update) && !(unread && next.passing) {
				latest, out = next.Update, w.out
			}
		}
	}
}

func same(a, b store.Update) bool {
	if a.Err != nil && b.Err != nil {
		return a.Err.Error() == b.Err.Error()
	}
	return a.Err == nil && b.Err == nil && a.Document.Equal(b.Document)
}

// follow runs an informer on the one object, which needs no permission on others.
func (w *watcher) follow(ctx context.Context) {
	informer := cache.NewSharedInformer(w.reader.listWatch(), &corev1.ConfigMap{}, 0)
	// Both fail only on an informer that was started or stopped.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { w.failed(ctx, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(ctx, o) },
		UpdateFunc: func(_, o any) { w.see(ctx, o) },
		DeleteFunc: func(o any) { w.gone(ctx, o) },
	})
	informer.RunWithContext(ctx)
}

func (r *Reader) listWatch() cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, r.o.Name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return r.configMaps().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return r.configMaps().Watch(ctx, o)
		},
	}
}

// see tells what an event's object says. The selector is the server's to honour,
// so it is checked.
func (w *watcher) see(ctx context.Context, o any) {
	cm, ok := o.(*corev1.ConfigMap)
	if !ok || cm.Name != w.reader.o.Name {
		return
	}
	d, err := w.reader.document(cm)
	w.tell(ctx, news{Update: store.Update{Document: d, Err: err}})
}

func (w *watcher) gone(ctx context.Context, o any) {
	if cm, ok := o.(*corev1.ConfigMap); ok && cm.Name != w.reader.o.Name {
		return
	}
	w.tell(ctx, news{Update: store.Update{Err: fmt.Errorf("load parameter document: %s: %w", w.reader.o, store.ErrNotFound)}})
}

// failed tells of a watch that could not be kept up. That one ends or expires is
// its ordinary life.
func (w *watcher) failed(ctx context.Context, err error) {
	w.reader.o.Logger.Debug("The watch of the parameter document is made anew", "configMap", w.reader.o.String(), "err", err)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	w.tell(ctx, news{passing: true, Update: store.Update{Err: fmt.Errorf("watch parameter document: %w", w.reader.explain(err))}})
}

func (w *watcher) tell(ctx context.Context, n news) {
	select {
	case w.news <- n:
	case <-ctx.Done():
	}
}
