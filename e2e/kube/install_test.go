package kube

import (
	"context"
	"os"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
)

var (
	applied = regexp.MustCompile(`(?m)^    kubectl apply --server-side -k (deploy/\S+)$`)
	patched = regexp.MustCompile(`(?m)^    kubectl -n (\S+) patch configmap (\S+) --type merge -p '(.*)'$`)
)

// TestInstallation follows docs/install.md by its lines, as kubectl would.
func TestInstallation(t *testing.T) {
	monitoring(t)
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	overlay, patches := applied.FindStringSubmatch(page), patched.FindAllStringSubmatch(page, -1)
	if overlay == nil || len(patches) != 2 {
		t.Fatalf("the page has lost its commands: %q, %q", overlay, patches)
	}
	ns, name := patches[0][1], patches[0][2]
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects := kustomized(t, "../"+overlay[1])
	for _, o := range objects {
		if got := o.GetNamespace(); got != "" && got != ns {
			t.Errorf("%s %s is in namespace %q, the page says %q", o.GetKind(), o.GetName(), got, ns)
		}
	}
	apply(t, ns, objects, false)

	options := configmap.Options{Client: admin.CoreV1(), Namespace: ns, Name: name, Pool: "default"}
	s, err := configmap.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Swap(t.Context(), document("default", 1, 64)); err != nil {
		t.Fatal(err)
	}
	policy := policyOf(t, "default", nil)
	updates := s.Watch(t.Context())
	obey := func(u store.Update) {
		if u.Err != nil {
			policy.Stop(u.Err)
			return
		}
		_ = policy.Apply(u.Document)
	}
	obey(<-updates)
	for i, want := range []plugin.Source{plugin.SourceConfig, plugin.SourceStore} {
		patch(t, ns, name, patches[i][3])
		await(t, updates, "patch "+patches[i][3], func(u store.Update) bool {
			obey(u)
			return policy.InForce().Source == want
		})
	}
	apply(t, ns, objects, false)
	if _, err := s.Load(context.Background()); err != nil {
		t.Errorf("after the manifests were applied again: %v", err)
	}
}

func patch(t *testing.T, ns, name, body string) {
	t.Helper()
	if _, err := admin.CoreV1().ConfigMaps(ns).Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "kubectl-patch"}); err != nil {
		t.Fatal(err)
	}
}
