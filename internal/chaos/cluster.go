package chaos

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
)

// cluster is a store in a ConfigMap. Its own methods are those of a bystander who
// reaches the API server always; tuners get theirs by open.
type cluster struct {
	*configmap.Store
	api *apiServer

	// What Load returned for the ConfigMap of this version.
	version  int
	document *store.Document
	err      error
}

func newCluster() (*cluster, error) {
	api := &apiServer{}
	c, err := api.open(api.answer, "")
	return &cluster{Store: c, api: api, version: -1}, err
}

// open the ConfigMap with a transport; who has an identity takes it over.
func (s *apiServer) open(transport roundTrip, identity string) (*configmap.Store, error) {
	config := &rest.Config{Host: "http://kubernetes.invalid", Transport: transport, QPS: -1}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return configmap.Open(configmap.Options{Client: client, Namespace: namespace, Name: poolName, Pool: poolName, Identity: identity})
}

// Load implements tuner.Documents. It is asked for after every event.
func (c *cluster) Load(ctx context.Context) (*store.Document, error) {
	if c.version != c.api.version {
		c.version = c.api.version
		c.document, c.err = c.Store.Load(ctx)
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.document.Clone(), nil
}

func (c *cluster) content() ([]byte, error) {
	if c.api.stored == nil {
		return nil, nil
	}
	if text, found := c.api.stored.Data[configmap.DefaultKey]; found {
		return []byte(text), nil
	}
	return c.api.stored.BinaryData[configmap.DefaultKey], nil
}

func (c *cluster) put(raw []byte) error {
	c.api.edit(func(cm *corev1.ConfigMap) {
		delete(cm.Data, configmap.DefaultKey)
		if raw != nil {
			cm.Data[configmap.DefaultKey] = string(raw)
		}
	})
	return nil
}

func (c *cluster) putCheckpoint(raw []byte) error {
	if raw != nil {
		return c.SaveCheckpoint(context.Background(), raw)
	}
	c.api.edit(func(cm *corev1.ConfigMap) { delete(cm.BinaryData, configmap.CheckpointKey) })
	return nil
}

// documents is a tuner's own way to what the medium holds, under the name of this
// start of it. One that only observes takes nothing over.
func (w *world) documents(name string, ask roundTrip) (tuner.Documents, error) {
	c, clustered := w.medium.(*cluster)
	if !clustered {
		return w.medium, nil
	}
	if w.settings.Mode == tuner.Observe {
		name = ""
	}
	return c.api.open(ask, name)
}

// wire is how a tuner's requests reach the API server.
func (p *process) wire(r *http.Request) (*http.Response, error) {
	w := p.w
	c, _ := w.medium.(*cluster)
	switch {
	case w.hits(clusterRefuses):
		return refusal(r, pick(w.rng, 400, 401, 403, 408, 429, 500, 503, 504))
	case w.hits(clusterGarbles):
		return reply(http.StatusOK, pick(w.rng, "", "{", "null", "[]", "<html>", `{"kind":"Pod","apiVersion":"v1"}`))(r)
	case r.Method != http.MethodGet && w.hits(clusterTouched):
		c.api.touch()
	}
	before := c.api.stored.DeepCopy()
	answer, err := c.api.answer(r)
	w.watch.written(p, before, c.api.stored)
	return answer, err
}

// strikeCluster is what people and other controllers do to the ConfigMap.
func (w *world) strikeCluster(s *strike) {
	c, clustered := w.medium.(*cluster)
	if !clustered {
		return
	}
	w.version++
	switch s.kind {
	case clusterDeleted:
		w.watch.forgetful()
		c.api.remove()
	case clusterHeld:
		c.api.hold(true)
	case clusterSigned:
		c.api.edit(func(cm *corev1.ConfigMap) {
			metav1.SetMetaDataAnnotation(&cm.ObjectMeta, configmap.WriterAnnotation, pickFrom(s.fault, []string{"someone", "", "a\nb", "\x1b[2J"}))
		})
	}
}

// release what a fault did to the ConfigMap.
func (w *world) release(s *strike) {
	if c, clustered := w.medium.(*cluster); clustered && s.kind == clusterHeld {
		w.version++
		c.api.hold(false)
	}
}

// written checks what a tuner made of the ConfigMap.
func (v *watch) written(p *process, before, after *corev1.ConfigMap) {
	if before == nil || after == nil || before.ResourceVersion == after.ResourceVersion {
		return
	}
	if before.Data[notesKey] != after.Data[notesKey] || before.Labels[notesKey] != after.Labels[notesKey] {
		v.violate("what others keep in the ConfigMap stays", "%s made %q of %q", p.name, after.Data[notesKey], before.Data[notesKey])
	}
	if held(before) && before.Data[configmap.DefaultKey] != after.Data[configmap.DefaultKey] {
		v.violate("what a manifest declares is left alone", "%s wrote over it", p.name)
	}
	v.signed(before.Annotations[configmap.WriterAnnotation], after.Annotations[configmap.WriterAnnotation])
}

// signed notes who was deposed: another has signed after it. A ConfigMap whose
// signature was taken out by hand is anyone's.
func (v *watch) signed(former, writer string) {
	if former == writer {
		return
	}
	if former == "" {
		delete(v.deposed, writer)
		return
	}
	if v.deposed[writer] {
		v.violate("who was deposed writes no more", "%s signs after %s", writer, former)
	}
	v.deposed[former] = true
}
