//go:build e2e

package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

const (
	namespace = "llm"
	poolName  = "qwen"
)

// apiServer is as much of a Kubernetes API server as an EPP reads: discovery,
// and list and watch of pods and of one InferencePool.
type apiServer struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	events  map[string][]event
	objects map[string]map[string]any
	version int
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
	at     int
}

const pods, pools = "pods", "inferencepools"

// startAPIServer returns the server and a kubeconfig for it.
func startAPIServer(t *testing.T, port int) (*apiServer, string) {
	t.Helper()
	s := &apiServer{
		changed: make(chan struct{}),
		events:  map[string][]event{},
		objects: map[string]map[string]any{pods: {}, pools: {}},
		version: 1,
	}
	s.put(pools, poolName, pool(port))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	path := t.TempDir() + "/kubeconfig"
	config := `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"http://` + listener.Addr().String() + `"}}],
		"users":[{"name":"c","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, path
}

func pool(port int) *v1.InferencePool {
	return &v1.InferencePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "inference.networking.k8s.io/v1", Kind: "InferencePool"},
		ObjectMeta: metav1.ObjectMeta{Name: poolName, Namespace: namespace, UID: "pool"},
		Spec: v1.InferencePoolSpec{
			Selector:    v1.LabelSelector{MatchLabels: map[v1.LabelKey]v1.LabelValue{"app": "vllm"}},
			TargetPorts: []v1.Port{{Number: v1.PortNumber(port)}},
		},
	}
}

// addPod makes a ready pod.
func (s *apiServer) addPod(name, ip string) {
	s.put(pods, name, &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Labels: map[string]string{"app": "vllm"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
}

func (s *apiServer) put(kind, name string, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change := "MODIFIED"
	if _, found := s.objects[kind][name]; !found {
		change = "ADDED"
	}
	s.record(kind, change, object)
	s.objects[kind][name] = object
}

func (s *apiServer) deletePod(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[pods][name].(*corev1.Pod).DeepCopy()
	delete(s.objects[pods], name)
	s.record(pods, "DELETED", object)
}

func (s *apiServer) record(kind, change string, object runtime.Object) {
	s.version++
	object.(metav1.Object).SetResourceVersion(strconv.Itoa(s.version))
	s.events[kind] = append(s.events[kind], event{change, object, s.version})
	close(s.changed)
	s.changed = make(chan struct{})
}

var discovery = map[string]any{
	"/api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
	"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{{
		Name:             "inference.networking.k8s.io",
		Versions:         []metav1.GroupVersionForDiscovery{{GroupVersion: "inference.networking.k8s.io/v1", Version: "v1"}},
		PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "inference.networking.k8s.io/v1", Version: "v1"},
	}}},
	"/api/v1":                              resources("v1", pods, "Pod"),
	"/apis/inference.networking.k8s.io/v1": resources("inference.networking.k8s.io/v1", pools, "InferencePool"),
}

func resources(version, name, kind string) metav1.APIResourceList {
	return metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
		APIResources: []metav1.APIResource{{Name: name, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}}},
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if answer, found := discovery[r.URL.Path]; found {
		json.NewEncoder(w).Encode(answer)
		return
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	switch {
	case s.objects[kind] == nil || r.Method != http.MethodGet:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("sendInitialEvents") != "":
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "":
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		s.watch(w, r, kind, from)
	default:
		s.list(w, kind)
	}
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
}

func (s *apiServer) list(w http.ResponseWriter, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, object := range s.objects[kind] {
		items = append(items, object)
	}
	list := map[string]any{"kind": "PodList", "apiVersion": "v1"}
	if kind == pools {
		list = map[string]any{"kind": "InferencePoolList", "apiVersion": "inference.networking.k8s.io/v1"}
	}
	list["metadata"] = map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	list["items"] = items
	json.NewEncoder(w).Encode(list)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, kind string, from int) {
	for next := 0; ; {
		s.mu.Lock()
		fresh, changed := s.events[kind][next:], s.changed
		next = len(s.events[kind])
		for _, e := range fresh {
			if e.at > from {
				json.NewEncoder(w).Encode(e)
			}
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
