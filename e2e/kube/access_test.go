package kube

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kvtuner/kvtuner/store/configmap"
)

// token of a service account, as a pod gets one.
func token(t *testing.T, namespace, account string) string {
	t.Helper()
	got, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

func as(t *testing.T, namespace, account string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(plane.config())
	config.BearerToken = token(t, namespace, account)
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAccess: what the Roles of the base allow is enough, and what they forbid is
// forbidden.
func TestAccess(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, kustomized(t, "base"), false)
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "epp"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tuner, epp := as(t, ns, "kvtuner"), as(t, ns, "epp")
	allowed := map[string]func(context.Context) error{
		"the tuner writes the document": func(ctx context.Context) error {
			s, err := configmap.Open(configmap.Options{Client: tuner.CoreV1(), Namespace: ns, Name: "kvtuner-default", Identity: "a"})
			if err != nil {
				return err
			}
			return s.Swap(ctx, document("default", 1, 64))
		},
		"the tuner renews its Lease": func(ctx context.Context) error {
			l, err := tuner.CoordinationV1().Leases(ns).Get(ctx, "kvtuner", metav1.GetOptions{})
			if err == nil {
				_, err = tuner.CoordinationV1().Leases(ns).Update(ctx, l, metav1.UpdateOptions{})
			}
			return err
		},
		"the tuner tells of events": func(ctx context.Context) error {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: ns, Name: "kvtuner-default"}}
			_, err := tuner.CoreV1().Events(ns).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
		"the Endpoint Picker watches the document": func(ctx context.Context) error {
			o := metav1.ListOptions{FieldSelector: "metadata.name=kvtuner-default"}
			if _, err := epp.CoreV1().ConfigMaps(ns).List(ctx, o); err != nil {
				return err
			}
			w, err := epp.CoreV1().ConfigMaps(ns).Watch(ctx, o)
			if err == nil {
				w.Stop()
			}
			return err
		},
	}
	eventually(t, "the roles to be known", func(ctx context.Context) bool {
		_, err := tuner.CoreV1().ConfigMaps(ns).Get(ctx, "kvtuner-default", metav1.GetOptions{})
		return err == nil
	})
	for what, do := range allowed {
		if err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, do := range forbidden(ns, tuner, epp) {
		if err := do(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want it forbidden", what, err)
		}
	}
}

func forbidden(ns string, tuner, epp kubernetes.Interface) map[string]func(context.Context) error {
	maps, get, list := tuner.CoreV1().ConfigMaps(ns), metav1.GetOptions{}, metav1.ListOptions{}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	return map[string]func(context.Context) error{
		"the tuner reads another ConfigMap": func(ctx context.Context) error { _, err := maps.Get(ctx, "other", get); return err },
		"the tuner lists ConfigMaps":        func(ctx context.Context) error { _, err := maps.List(ctx, list); return err },
		"the tuner makes a ConfigMap":       func(ctx context.Context) error { _, err := maps.Create(ctx, made, metav1.CreateOptions{}); return err },
		"the tuner deletes its ConfigMap":   func(ctx context.Context) error { return maps.Delete(ctx, "kvtuner-default", metav1.DeleteOptions{}) },
		"the tuner reads another namespace": func(ctx context.Context) error {
			_, err := tuner.CoreV1().ConfigMaps("kube-system").Get(ctx, "kvtuner-default", get)
			return err
		},
		"the tuner lists pods":    func(ctx context.Context) error { _, err := tuner.CoreV1().Pods(ns).List(ctx, list); return err },
		"the tuner lists secrets": func(ctx context.Context) error { _, err := tuner.CoreV1().Secrets(ns).List(ctx, list); return err },
		"the tuner lists events":  func(ctx context.Context) error { _, err := tuner.CoreV1().Events(ns).List(ctx, list); return err },
		"the tuner reads another Lease": func(ctx context.Context) error {
			_, err := tuner.CoordinationV1().Leases(ns).Get(ctx, "other", get)
			return err
		},
		"the tuner makes a Lease": func(ctx context.Context) error {
			_, err := tuner.CoordinationV1().Leases(ns).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
			return err
		},
		"the Endpoint Picker lists all ConfigMaps": func(ctx context.Context) error { _, err := epp.CoreV1().ConfigMaps(ns).List(ctx, list); return err },
		"the Endpoint Picker writes the document": func(ctx context.Context) error {
			cm := made.DeepCopy()
			cm.Name = "kvtuner-default"
			_, err := epp.CoreV1().ConfigMaps(ns).Update(ctx, cm, metav1.UpdateOptions{})
			return err
		},
		"the Endpoint Picker reads the Lease": func(ctx context.Context) error {
			_, err := epp.CoordinationV1().Leases(ns).Get(ctx, "kvtuner", get)
			return err
		},
	}
}
