package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kvtuner/kvtuner/store/configmap"
)

// TestDiscovery: pools come and go with the objects that stand for them, of both
// kinds, for a tuner that may do what the base and the component allow it. Objects
// that cannot stand for a pool are refused, and hold up no other.
func TestDiscovery(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, kustomized(t, "../e2e/kube/testdata/discovery"), false)
	r := launchConfig(t, fmt.Sprintf(`
kubernetes:
  kubeconfig: %q
  discover: {configMaps: kvtuner.io/pool, inferencePools: kvtuner.io/tune=yes, selector: 'namespace="{namespace}",pool="{pool}"'}
defaults: {mode: enforce}
`, plane.kubeconfig(t, ns, token(t, ns, "kvtuner"))))
	address := r.address(t)
	ready := func(context.Context) string { return fetch(t, http.DefaultClient, address+"/readyz") }

	// No test before this one, by the names of the files, has installed it.
	eventually(t, "the kind that is not there to be told of", func(ctx context.Context) bool {
		return strings.Contains(ready(ctx), "discovery of InferencePools: ") && strings.Contains(ready(ctx), "install the CustomResourceDefinition")
	})
	defineInferencePools(t)

	began := time.Now()
	labelled(t, ns, "cm-a", "a", "")
	takenOver(t, ns, address, "a", "cm-a")
	t.Logf("from a labelled ConfigMap to its document: %v", time.Since(began).Round(time.Millisecond))

	t.Run("refused", func(t *testing.T) { checkRefused(t, ns, address, ready) })
	t.Run("checked", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), binary("kvtuner"), "check", "--config", r.config).Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("kvtuner check: %v, want exit code 7", err)
		}
		for _, says := range []string{"pool a,", "pool ConfigMap bad-key,", "tyop"} {
			if !strings.Contains(string(out), says) {
				t.Errorf("kvtuner check does not say %q:\n%s", says, out)
			}
		}
	})

	t.Run("changed", func(t *testing.T) {
		edit(t, ns, "cm-a", func(cm *corev1.ConfigMap) { cm.Annotations["kvtuner.io/settings"] = "mode: observe" })
		eventually(t, "the pool to observe", func(context.Context) bool { return modes(t, address)["a"] == "observe" })
		edit(t, ns, "cm-a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, "kvtuner.io/settings") })
		eventually(t, "the pool to be tuned again", func(context.Context) bool { return modes(t, address)["a"] == "enforce" })
	})

	t.Run("API server away", func(t *testing.T) {
		plane.stopAPIServer()
		if err := plane.startAPIServer(); err != nil {
			t.Fatal(err)
		}
		labelled(t, ns, "cm-b", "b", "")
		takenOver(t, ns, address, "b", "cm-b")
		if modes(t, address)["a"] == "" {
			t.Error("pool a was taken for gone")
		}
	})

	t.Run("InferencePool", func(t *testing.T) { checkInferencePool(t, ns, address) })

	t.Run("gone", func(t *testing.T) {
		edit(t, ns, "cm-a", func(cm *corev1.ConfigMap) { delete(cm.Labels, "kvtuner.io/pool") })
		if err := admin.CoreV1().ConfigMaps(ns).Delete(t.Context(), "cm-b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pools to be gone", func(context.Context) bool {
			m := modes(t, address)
			return m["a"] == "" && m["b"] == "" && !strings.Contains(fetch(t, http.DefaultClient, address+"/metrics"), `pool="a"`)
		})
		if _, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "cm-b", metav1.GetOptions{}); err == nil {
			t.Error("the ConfigMap was made again")
		}
		reader, err := configmap.OpenReader(configmap.Options{Client: admin.CoreV1(), Namespace: ns, Name: "cm-a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Load(t.Context()); err != nil {
			t.Errorf("the document of the pool that is no longer tuned: %v", err)
		}
		labelled(t, ns, "cm-b", "b", "")
		takenOver(t, ns, address, "b", "cm-b")
	})
}

// defineInferencePools installs the definition of InferencePools.
func defineInferencePools(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile("testdata/inferencepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, "", parse(t, string(raw)), false)
	eventually(t, "the kind InferencePool", func(context.Context) bool {
		_, err := admin.Discovery().ServerResourcesForGroupVersion("inference.networking.k8s.io/v1")
		return err == nil
	})
}

// labelled makes a ConfigMap that stands for a pool.
func labelled(t *testing.T, ns, name, pool, settings string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kvtuner.io/pool": pool}, Annotations: map[string]string{}}}
	if settings != "" {
		cm.Annotations["kvtuner.io/settings"] = settings
	}
	if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// takenOver waits until a pool's document is in its ConfigMap.
func takenOver(t *testing.T, ns, address, pool, name string) {
	t.Helper()
	reader, err := configmap.OpenReader(configmap.Options{Client: admin.CoreV1(), Namespace: ns, Name: name, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the document of "+pool, func(ctx context.Context) bool {
		_, err := reader.Load(ctx)
		return err == nil && modes(t, address)[pool] == "enforce"
	})
}

// modes of the pools, as the status says.
func modes(t *testing.T, address string) map[string]string {
	t.Helper()
	var status struct {
		Pools []struct{ Pool, Mode string } `json:"pools"`
	}
	if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, address+"/api/v1/status")), &status); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range status.Pools {
		found[p.Pool] = p.Mode
	}
	return found
}

// checkRefused: each is told of by name, with the reason, and as an Event.
func checkRefused(t *testing.T, ns, address string, ready func(context.Context) string) {
	for name, bad := range map[string]struct{ pool, settings, says string }{
		"bad-mode":   {"c", "mode: sometimes", `mode: "sometimes" is not allowed`},
		"bad-key":    {"d", "tyop: 1", "tyop"},
		"bad-yaml":   {"e", "{", "not YAML"},
		"bad-store":  {"f", "store: {file: /etc/passwd}", "store: the object itself says it"},
		"bad-name":   {"g", "name: h", "name: the object itself says it"},
		"bad-twin":   {"a", "", "the name a belongs to the pool of ConfigMap " + ns + "/cm-a"},
		"bad-series": {"i", fmt.Sprintf("selector: 'namespace=%q,pool=\"a\"'", ns), "the selector "},
		"bad-promql": {"j", `selector: '} or up{'`, "selector"},
	} {
		labelled(t, ns, name, bad.pool, bad.settings)
		eventually(t, name+" to be refused", func(ctx context.Context) bool {
			return strings.Contains(ready(ctx), "pool ConfigMap "+name+": refused: ") && strings.Contains(ready(ctx), bad.says)
		})
		eventually(t, "an Event about "+name, func(ctx context.Context) bool {
			events, err := admin.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=PoolRefused,involvedObject.name=" + name})
			return err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, bad.says)
		})
	}
	if modes(t, address)["a"] != "enforce" {
		t.Error("the pool that was there before them is not tuned")
	}
	// The name is free once its owner is gone, and the settings may be corrected.
	edit(t, ns, "bad-mode", func(cm *corev1.ConfigMap) { cm.Annotations["kvtuner.io/settings"] = "mode: enforce" })
	takenOver(t, ns, address, "c", "bad-mode")
}

// checkInferencePool: its document is in a ConfigMap that the tuner makes, and stays.
func checkInferencePool(t *testing.T, ns, address string) {
	client, err := dynamic.NewForConfig(plane.config())
	if err != nil {
		t.Fatal(err)
	}
	pools := client.Resource(schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}).Namespace(ns)
	for _, o := range parse(t, `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: qwen, labels: {kvtuner.io/tune: "yes"}, annotations: {kvtuner.io/settings: "trial: {block: 4m}"}}
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}]}
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: other}
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}]}
`) {
		eventually(t, "the kind InferencePool", func(ctx context.Context) bool {
			_, err := pools.Create(ctx, o, metav1.CreateOptions{})
			return err == nil
		})
	}
	takenOver(t, ns, address, "qwen", "kvtuner-qwen")
	if modes(t, address)["other"] != "" {
		t.Error("a pool without the label is tuned")
	}
	if err := pools.Delete(t.Context(), "qwen", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool to be gone", func(context.Context) bool { return modes(t, address)["qwen"] == "" })
	if _, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "kvtuner-qwen", metav1.GetOptions{}); err != nil {
		t.Errorf("the document of the pool is gone, too: %v", err)
	}
}
