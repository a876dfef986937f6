package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
)

// namespace makes a new one.
func namespace(t testing.TB, labels ...string) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kvtuner-", Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	made, err := admin.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func open(t testing.TB, namespace, pool, identity string) *configmap.Store {
	t.Helper()
	s, err := configmap.Open(configmap.Options{
		Client: admin.CoreV1(), Namespace: namespace, Name: "kvtuner-" + pool, Pool: pool, Identity: identity,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func document(pool string, revision int64, tokens store.Tokens) *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion, Pool: pool, Revision: revision, UpdatedAt: time.Now().UTC(),
		Baseline: store.Params{MinExternalReusableTokens: tokens, MaxWaitingRequests: 8},
	}
}

// edit changes a ConfigMap as kubectl edit does.
func edit(t testing.TB, namespace, name string, change func(*corev1.ConfigMap)) {
	t.Helper()
	for range 20 {
		cm, err := admin.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		change(cm)
		if _, err = admin.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{FieldManager: "kubectl-edit"}); err == nil {
			return
		}
	}
	t.Fatalf("could not edit ConfigMap %s/%s", namespace, name)
}

// await takes updates until one is as wanted.
func await(t testing.TB, updates <-chan store.Update, what string, wanted func(store.Update) bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				t.Fatalf("the watch ended before %s", what)
			}
			if wanted(u) {
				return
			}
		case <-limit:
			t.Fatalf("waited 2 minutes for %s", what)
		}
	}
}

func revision(n int64) func(store.Update) bool {
	return func(u store.Update) bool { return u.Err == nil && u.Document.Revision == n }
}

func failed(target error) func(store.Update) bool {
	return func(u store.Update) bool { return errors.Is(u.Err, target) }
}

// eventually polls, as an operator looks again.
func eventually(t testing.TB, what string, met func(context.Context) bool) {
	t.Helper()
	const limit = 2 * time.Minute
	for deadline := time.Now().Add(limit); !met(t.Context()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}
