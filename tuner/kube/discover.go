package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
)

// What an object that stands for a pool says about it.
const (
	// PoolLabel names the pool; without it the object's name does.
	PoolLabel = "kvtuner.io/pool"
	// SettingsAnnotation overrides the configuration's defaults, as YAML.
	SettingsAnnotation = "kvtuner.io/settings"
)

// Object stands for a pool: for as long as it is there, the pool is tuned.
type Object struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
	// Made is when, as Unix time: of two objects that want the same, the older has it.
	Made int64
	// Written tells that a tuner has written its document into it.
	Written bool
	// Pool and Settings are what PoolLabel and SettingsAnnotation say.
	Pool, Settings string
}

// String names the object.
func (o Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Reference is for Events about the object.
func (o Object) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// HoldsDocument tells that the object is the ConfigMap of the pool itself, which must
// not be made again once it is gone.
func (o Object) HoldsDocument() bool { return o.Kind == configMaps.kind }

// Found is the pool as the configuration takes it.
func (o Object) Found() tuner.Found {
	document := tuner.ConfigMapConfig{Namespace: o.Namespace, Name: o.Name}
	if !o.HoldsDocument() {
		document.Name = "kvtuner-" + o.Name
	}
	return tuner.Found{Pool: o.Pool, Document: document, Overrides: o.Settings}
}

// Sight is what there is at one time.
type Sight struct {
	// Objects, the oldest first.
	Objects []Object
	// Troubles are why objects of a kind may be missing, by its name in the plural.
	Troubles []Trouble
}

// Trouble is a kind of objects that cannot be watched, and what to do about it.
type Trouble struct{ Kind, Message string }

func (s Sight) equal(other Sight) bool {
	return slices.Equal(s.Objects, other.Objects) && slices.Equal(s.Troubles, other.Troubles)
}

// kind of objects that can stand for pools.
type kind struct {
	kind, setting string
	resource      schema.GroupVersionResource
	// absent says what to do where the API server does not know it.
	absent string
}

var (
	configMaps = kind{
		kind: "ConfigMap", setting: "configMaps", resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		absent: "it is no Kubernetes API server",
	}
	inferencePools = kind{
		kind: "InferencePool", setting: "inferencePools",
		resource: schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"},
		absent:   "install the CustomResourceDefinition of gateway-api-inference-extension, or leave kubernetes.discover.inferencePools empty",
	}
)

// Discovery watches the objects that stand for pools. It reads their metadata only.
type Discovery struct {
	watches []*kindWatch
	changed chan struct{}
}

// NewDiscovery checks the label selectors; it sends no request.
func NewDiscovery(c *Cluster, o tuner.DiscoverConfig, log *slog.Logger) (*Discovery, error) {
	namespace := cmp.Or(o.Namespace, c.Namespace)
	d := &Discovery{changed: make(chan struct{}, 1)}
	for _, w := range []struct {
		kind
		selector string
	}{{configMaps, o.ConfigMaps}, {inferencePools, o.InferencePools}} {
		if w.selector == "" {
			continue
		}
		if _, err := labels.Parse(w.selector); err != nil {
			return nil, fmt.Errorf("discover.%s: %q is not a label selector such as %q: %w", w.setting, w.selector, PoolLabel, err)
		}
		client := c.Metadata.Resource(w.resource).Namespace(namespace)
		d.watches = append(d.watches, newKindWatch(w.kind, namespace, w.selector, client, d.nudge, log))
	}
	return d, nil
}

// Watch tells what there is, as soon as it is known, and again at each change, until
// ctx ends and the channel is closed. While the API server is away, what was there is
// taken to be there still.
func (d *Discovery) Watch(ctx context.Context) <-chan Sight {
	for _, w := range d.watches {
		go w.run(ctx)
	}
	out := make(chan Sight)
	go d.forward(ctx, out)
	return out
}

// List looks once.
func (d *Discovery) List(ctx context.Context) (Sight, error) {
	var s Sight
	for _, w := range d.watches {
		list, err := w.list(ctx, metav1.ListOptions{})
		if err != nil {
			return Sight{}, w.explain(err)
		}
		for i := range list.Items {
			s.Objects = w.kind.appendObject(s.Objects, &list.Items[i])
		}
	}
	slices.SortFunc(s.Objects, older)
	return s, nil
}

func (d *Discovery) nudge() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *Discovery) forward(ctx context.Context, out chan<- Sight) {
	defer close(out)
	var last Sight
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		}
		now := d.look()
		if now.equal(last) {
			continue
		}
		select {
		case out <- now:
			last = now
		case <-ctx.Done():
			return
		}
	}
}

func (d *Discovery) look() Sight {
	var s Sight
	for _, w := range d.watches {
		s.Objects = append(s.Objects, w.objects()...)
		if t := w.trouble(); t != "" {
			s.Troubles = append(s.Troubles, Trouble{w.kind.kind + "s", t})
		}
	}
	slices.SortFunc(s.Objects, older)
	return s
}

func older(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Made, b.Made), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// appendObject adds what is not about to go.
func (k kind) appendObject(all []Object, m *metav1.PartialObjectMetadata) []Object {
	if m.DeletionTimestamp != nil {
		return all
	}
	return append(all, Object{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		Made: m.CreationTimestamp.Unix(), Written: m.Annotations[configmap.WriterAnnotation] != "", Pool: cmp.Or(m.Labels[PoolLabel], m.Name), Settings: m.Annotations[SettingsAnnotation],
	})
}
