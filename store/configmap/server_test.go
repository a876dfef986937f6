package configmap_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// apiServer is as much of a Kubernetes API server as one ConfigMap needs: get,
// create, update with optimistic concurrency, list and watch. The tests against a
// real one are a module of their own.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	stored  *corev1.ConfigMap
	events  []map[string]any
	from    int           // events before this version are compacted
	changed chan struct{} // closed at the next event
	refuse  func(*http.Request) *metav1.Status
	gone    chan struct{} // closed to end all watches
	reads   int           // gets so far
}

func startServer(t *testing.T) *apiServer {
	s := &apiServer{version: 10, changed: make(chan struct{}), gone: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.cutWatches(); s.Close() })
	return s
}

func (s *apiServer) client(t *testing.T) corev1client.ConfigMapsGetter {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := corev1client.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		if status := refuse(r); status != nil {
			reply(w, int(status.Code), status)
			return
		}
	}
	query := r.URL.Query()
	switch {
	case query.Get("watch") != "":
		s.watch(w, r)
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps"):
		s.list(w)
	case r.Method == http.MethodGet:
		s.get(w)
	default:
		s.write(w, r)
	}
}

func (s *apiServer) get(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.stored == nil {
		reply(w, 404, failure(404, metav1.StatusReasonNotFound))
		return
	}
	reply(w, 200, s.stored)
}

func (s *apiServer) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	list.ResourceVersion = strconv.Itoa(s.version)
	if s.stored != nil {
		list.Items = append(list.Items, *s.stored)
	}
	reply(w, 200, list)
}

func (s *apiServer) write(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	cm, ok := object.(*corev1.ConfigMap)
	if err != nil || !ok {
		reply(w, 400, failure(400, metav1.StatusReasonBadRequest))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && s.stored != nil:
		reply(w, 409, failure(409, metav1.StatusReasonAlreadyExists))
	case r.Method == http.MethodPut && s.stored == nil:
		reply(w, 404, failure(404, metav1.StatusReasonNotFound))
	case r.Method == http.MethodPut && cm.ResourceVersion != s.stored.ResourceVersion:
		reply(w, 409, failure(409, metav1.StatusReasonConflict))
	default:
		reply(w, 200, s.store(cm))
	}
}

// store needs the lock.
func (s *apiServer) store(cm *corev1.ConfigMap) *corev1.ConfigMap {
	kind := "MODIFIED"
	if s.stored == nil {
		kind = "ADDED"
	}
	s.version++
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	cm.UID, cm.ResourceVersion = types.UID("u"), strconv.Itoa(s.version)
	s.stored = cm
	s.tell(kind, cm)
	return cm
}

func (s *apiServer) tell(kind string, cm *corev1.ConfigMap) {
	s.events = append(s.events, map[string]any{"type": kind, "object": cm.DeepCopy(), "version": s.version})
	close(s.changed)
	s.changed = make(chan struct{})
}

// edit changes the ConfigMap as a person does.
func (s *apiServer) edit(change func(*corev1.ConfigMap)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cm := s.stored.DeepCopy()
	if cm == nil {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "llm", Name: "qwen"}}
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	change(cm)
	s.store(cm)
}

func (s *apiServer) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	last := s.stored
	s.stored = nil
	s.tell("DELETED", last)
}

func (s *apiServer) current() *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.DeepCopy()
}

func (s *apiServer) setRefuse(refuse func(*http.Request) *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// compact forgets all events, so that a watch from the past gets 410.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.events = s.version+1, nil
}

// cutWatches ends those in progress.
func (s *apiServer) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gone)
	s.gone = make(chan struct{})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		reply(w, 422, failure(422, metav1.StatusReasonInvalid))
		return
	}
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	gone, expired := s.gone, seen+1 < s.from
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	encoder, flush := json.NewEncoder(w), w.(http.Flusher)
	if expired {
		_ = encoder.Encode(map[string]any{"type": "ERROR", "object": failure(410, metav1.StatusReasonExpired)})
		return
	}
	for {
		s.mu.Lock()
		changed := s.changed
		for _, e := range s.events {
			if version := e["version"].(int); version > seen {
				seen = version
				_ = encoder.Encode(e)
			}
		}
		s.mu.Unlock()
		flush.Flush()
		select {
		case <-changed:
		case <-gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func failure(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
