package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
)

// llmd is a configuration of llm-d-router whose endpoints are in a file.
const llmd = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: %q, watchFile: true}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://127.0.0.1:1"}}}
- {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSizeTokens: 16}}}
- {type: random-picker}
- {type: selective-kv-policy, parameters: {loadPolicy: threshold, minExternalReusableTokens: 100, maxWaitingRequests: 8,
    tuning: {configMap: {namespace: %q, name: kvtuner-default}}}}
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
dataLayer: {discovery: {pluginRef: file-discovery}}
`

// TestInForceInEndpointPickers measures from before a write to after the metrics of an
// Endpoint Picker, a process with the plugin in it, show its revision: somewhat more
// than until it is in force. As a service account it may do what the base allows the
// plugin, and what the framework itself needs.
func TestInForceInEndpointPickers(t *testing.T) {
	t.Run("gateway-api-inference-extension", func(t *testing.T) {
		ns := pickers(t)
		measureChanges(t, ns, startPicker(t, ns, "epp", "--pool-name=default", "--pool-namespace="+ns,
			"--metrics-endpoint-auth=false", "--config-file="+filepath.Join(deploy, "epp", "enforce.yaml")))
	})
	t.Run("llm-d-router", func(t *testing.T) {
		if _, err := os.Stat(binary("epp-llmd")); err != nil {
			t.Skip("make build-llmd LLM_D_ROUTER_SRC=<a checkout of llm-d-router> has not been run")
		}
		ns, dir := pickers(t), t.TempDir()
		endpoints, config := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "config.yaml")
		for path, text := range map[string]string{endpoints: "endpoints: []\n", config: fmt.Sprintf(llmd, endpoints, ns)} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		measureChanges(t, ns, startPicker(t, ns, "epp-llmd", "--pool-name=default", "--metrics-endpoint-auth=false", "--allow-experimental-plugins", "--config-file="+config))
	})
}

// pickers makes a namespace with the base, a pool, and what the frameworks need beside
// the plugin.
func pickers(t *testing.T) string {
	t.Helper()
	ns := namespace(t)
	apply(t, ns, kustomized(t, "base"), false)
	defineInferencePools(t)
	apply(t, ns, parse(t, `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: default}
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}]}
`), false)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "epp"}}
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	look := []string{"get", "list", "watch"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "framework"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: look},
		{APIGroups: []string{"inference.networking.k8s.io"}, Resources: []string{"inferencepools"}, Verbs: look},
	}}
	if _, err := admin.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "framework"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "framework"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "epp", Namespace: ns}}}
	if _, err := admin.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns
}

// startPicker returns the address of its metrics.
func startPicker(t *testing.T, ns, name string, args ...string) string {
	t.Helper()
	port := freePort()
	cmd := exec.Command(binary(name), append(args, "--metrics-port="+port, "--grpc-port="+freePort(), "--grpc-health-port="+freePort(),
		"--secure-serving=false", "--tracing=false", "--enable-pprof=false", "--v=0")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.kubeconfig(t, ns, token(t, ns, "epp")))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (make e2e-kube builds it)", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s said:\n%s", name, said[max(0, len(said)-8000):])
		}
		log.Close()
	})
	address := "http://127.0.0.1:" + port
	eventually(t, name+" to serve metrics", func(context.Context) bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", name)
		default:
		}
		return metricsOf(address) != ""
	})
	return address
}

func metricsOf(address string) string {
	response, err := http.Get(address + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

func measureChanges(t *testing.T, ns, address string) {
	t.Helper()
	const changes = 200
	s := open(t, ns, "default", "tuner-0")
	took := make([]time.Duration, changes)
	for n := range changes {
		began := time.Now()
		if err := s.Swap(t.Context(), document("default", int64(n+1), store.Tokens(256+n))); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("selective_kv_revision{pool=\"default\"} %d\n", n+1)
		for deadline := began.Add(time.Minute); !strings.Contains(metricsOf(address), want); {
			if time.Now().After(deadline) {
				t.Fatalf("revision %d is not in force after a minute", n+1)
			}
		}
		took[n] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("shown in force after %d changes: p50 %v, p99 %v, max %v", changes, took[changes/2], took[changes*99/100], took[changes-1])
}
