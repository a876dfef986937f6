package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deploy = "../../deploy"

var defineMonitoring sync.Once

// monitoring installs the definitions of ServiceMonitor and PrometheusRule.
func monitoring(t *testing.T) {
	t.Helper()
	defineMonitoring.Do(func() {
		raw, err := os.ReadFile("testdata/monitoring.yaml")
		if err != nil {
			t.Fatal(err)
		}
		apply(t, "", parse(t, string(raw)), false)
	})
	eventually(t, "the kinds of the Prometheus operator", func(context.Context) bool {
		_, err := admin.Discovery().ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		return err == nil
	})
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var u unstructured.Unstructured
		err := d.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if len(u.Object) > 0 {
			objects = append(objects, &u)
		}
	}
}

// apply as kubectl apply --server-side does, with strict validation.
func apply(t *testing.T, namespace string, objects []*unstructured.Unstructured, dryRun bool) {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(admin.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(plane.config())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			continue
		}
		var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			target = client.Resource(mapping.Resource).Namespace(namespace)
			o.SetNamespace(namespace)
		}
		body, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		force := true
		options := metav1.PatchOptions{FieldManager: "kubectl", Force: &force, FieldValidation: metav1.FieldValidationStrict}
		if dryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		if _, err := target.Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", body, options); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func kustomized(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deploy, path))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}

// rendered is the chart as helm template shows it.
func rendered(t *testing.T, namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(deploy, "chart/kvtuner"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "kvtuner", Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&text, "---\n%s\n", content)
		}
	}
	return parse(t, text.String()), nil
}

// restricted is a namespace that enforces the strictest Pod Security level.
func restricted(t *testing.T) string {
	return namespace(t, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/enforce-version=latest")
}

func TestKustomize(t *testing.T) {
	monitoring(t)
	for _, path := range []string{"base", "overlays/gie", "overlays/llm-d", "overlays/open-data-hub", "../e2e/kube/testdata/discovery"} {
		t.Run(path, func(t *testing.T) { install(t, kustomized(t, path)) })
	}
}

func TestChart(t *testing.T) {
	monitoring(t)
	for name, values := range map[string]map[string]any{
		"defaults": {},
		"everything": {
			"serviceMonitor": map[string]any{"enabled": true}, "prometheusRule": map[string]any{"enabled": true},
			"dashboards": map[string]any{"enabled": true}, "endpointPicker": map[string]any{"serviceAccount": "epp"},
			"imagePullSecrets": []any{map[string]any{"name": "pull"}}, "nodeSelector": map[string]any{"disk": "ssd"},
			"config": map[string]any{"pools": []any{map[string]any{"name": "a", "mode": "enforce"}, map[string]any{"name": "b"}}},
		},
		"discovered pools only": {"config": map[string]any{"pools": []any{}}, "endpointPicker": map[string]any{"serviceAccount": "epp"},
			"discover": map[string]any{"configMaps": "kvtuner.io/pool", "inferencePools": "kvtuner.io/tune=yes"}},
		"history on a volume": {"replicas": 1, "history": map[string]any{"size": "1Gi", "storageClassName": "fast"}},
		"user IDs assigned":   {"podSecurityContext": map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := rendered(t, "x", values)
			if err != nil {
				t.Fatal(err)
			}
			install(t, objects)
		})
	}
}

func TestChartRefuses(t *testing.T) {
	for says, values := range map[string]map[string]any{
		"replicas":    {"replicas": "two"},
		"tyop":        {"tyop": 1},
		"url":         {"config": map[string]any{"prometheus": map[string]any{"url": "prometheus:9090"}}},
		"mode":        {"config": map[string]any{"defaults": map[string]any{"mode": "on"}}},
		"discover":    {"config": map[string]any{"pools": []any{}}},
		"config":      {"config": map[string]any{"listen": ":1"}},
		"replicas: 1": {"history": map[string]any{"size": "1Gi"}},
	} {
		if _, err := rendered(t, "x", values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: got %v, want it to say %q", values, err, says)
		}
	}
}

// install validates, installs, and starts the pods as their Deployment would, where
// Pod Security is enforced.
func install(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	ns := restricted(t)
	apply(t, ns, objects, true)
	apply(t, ns, objects, false)
	apply(t, ns, objects, false) // an upgrade
	configured := false
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			startPod(t, ns, o)
		case "ConfigMap":
			if text, found, _ := unstructured.NestedString(o.Object, "data", "kvtuner.yaml"); found {
				configured = true
				checkConfiguration(t, text)
			}
		}
	}
	if !configured {
		t.Error("there is no configuration")
	}
}

func startPod(t *testing.T, namespace string, deployment *unstructured.Unstructured) {
	t.Helper()
	raw, err := json.Marshal(deployment.Object["spec"].(map[string]any)["template"])
	if err != nil {
		t.Fatal(err)
	}
	var template corev1.PodTemplateSpec
	if err := json.Unmarshal(raw, &template); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName = "kvtuner-"
	if _, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("Pod Security: %v", err)
	}
	// The same namespace refuses what is less restricted.
	pod.Spec.Containers[0].SecurityContext = nil
	if _, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err == nil {
		t.Error("a pod without a security context was accepted: nothing is enforced")
	}
}
