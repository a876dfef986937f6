package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kvtuner/kvtuner/store"
)

// component is who reports, in Events.
const component = "kvtuner"

// Events tells Kubernetes of decisions. They are sent in the background, alike ones
// are counted together, and what cannot be sent is dropped after some attempts: the
// history is the record, an Event is a courtesy.
type Events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

// NewEvents starts sending; Close ends it.
func NewEvents(ctx context.Context, c *Cluster) *Events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: c.Core.Events("")})
	return &Events{broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: c.Identity})}
}

// Close stops sending.
func (e *Events) Close() { e.broadcaster.Shutdown() }

// Journal records decisions in another journal first, then as Events about the
// object that about returns: the ConfigMap of the pool.
func (e *Events) Journal(j Journal, about func() *corev1.ObjectReference) Journal {
	return announced{Journal: j, events: e, about: about}
}

// Refuse tells that an object cannot stand for a pool, and why.
func (e *Events) Refuse(o Object, why string) {
	e.recorder.Event(o.Reference(), corev1.EventTypeWarning, "PoolRefused", shorten(why))
}

// Journal keeps the records of decisions.
type Journal interface {
	Append(store.Decision) error
}

type announced struct {
	Journal
	events *Events
	about  func() *corev1.ObjectReference
}

// Append implements Journal.
func (a announced) Append(d store.Decision) error {
	if err := a.Journal.Append(d); err != nil {
		return err
	}
	a.events.recorder.Event(a.about(), severity(d.Kind), reason(d.Kind), shorten(d.Reason))
	return nil
}

// severity is Warning for what an operator may have to look into.
func severity(k store.Kind) string {
	switch k {
	case store.KindAbort, store.KindShed, store.KindHold, store.KindDrift, store.KindRollback:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// reason is the kind in the CamelCase that Events have.
func reason(k store.Kind) string {
	if k == "" {
		return "Decision"
	}
	return "Tuning" + string(k[0]-'a'+'A') + string(k[1:])
}

// maxMessage is the API server's limit on the message of an Event.
const maxMessage = 1024

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len("...")
	for cut > 0 && s[cut]&0xc0 == 0x80 { // not within a rune
		cut--
	}
	return s[:cut] + "..."
}
