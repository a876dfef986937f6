package configmap_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/store/storetest"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() storetest.Backend {
		s := startServer(t)
		return func() storetest.Backend { return s.open(t, storetest.Pool, "") }
	})
}

func (s *apiServer) open(t *testing.T, pool, identity string) *configmap.Store {
	t.Helper()
	c, err := configmap.Open(configmap.Options{Client: s.client(t), Namespace: "llm", Name: "qwen", Pool: pool, Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func document(revision int64, tokens store.Tokens) *store.Document {
	return &store.Document{
		APIVersion: store.APIVersion, Pool: "qwen", Revision: revision,
		UpdatedAt: time.Date(2026, 11, 30, 16, 11, 51, 0, time.UTC),
		Baseline:  store.Params{MinExternalReusableTokens: tokens, MaxWaitingRequests: 8},
	}
}

func formatted(t *testing.T, d *store.Document) string {
	t.Helper()
	raw, err := store.Format(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestOptionsAreChecked(t *testing.T) {
	client := startServer(t).client(t)
	for field, o := range map[string]configmap.Options{
		"client":    {Namespace: "llm", Name: "qwen"},
		"namespace": {Client: client, Name: "qwen"},
		"name":      {Client: client, Namespace: "llm", Name: "No Name"},
		"key":       {Client: client, Namespace: "llm", Name: "qwen", Key: "a/b"},
		"timeout":   {Client: client, Namespace: "llm", Name: "qwen", Timeout: -1},
	} {
		_, err := configmap.Open(o)
		wantRefused(t, err, field)
	}
	_, err := configmap.OpenReader(configmap.Options{Client: client, Namespace: "llm", Name: "qwen", Key: configmap.StopKey})
	wantRefused(t, err, "key")
}

func wantRefused(t *testing.T, err error, field string) {
	t.Helper()
	var refused *store.FieldError
	if !errors.As(err, &refused) || refused.Field != field {
		t.Errorf("got %v, want field %q refused", err, field)
	}
}

// Whatever stands in the ConfigMap is told or ignored, never written over unread.
func TestHostileConfigMaps(t *testing.T) {
	good := formatted(t, document(1, 1024))
	for name, test := range map[string]struct {
		put  func(*corev1.ConfigMap)
		want error
	}{
		"nothing":         {func(*corev1.ConfigMap) {}, store.ErrNotFound},
		"empty document":  {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = "" }, store.ErrInvalid},
		"no JSON":         {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = "tokens: 1024" }, store.ErrInvalid},
		"other pool":      {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = strings.Replace(good, "qwen", "llama", 1) }, store.ErrInvalid},
		"deeply nested":   {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = strings.Repeat("[", 1<<19) }, store.ErrInvalid},
		"oversized":       {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = strings.Repeat(" ", 2<<20) }, store.ErrInvalid},
		"binary":          {func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"parameters.json": {0xff, 0}} }, store.ErrInvalid},
		"stopped":         {func(cm *corev1.ConfigMap) { cm.Data["parameters.json"], cm.Data["stop"] = good, "" }, store.ErrStopped},
		"stopped, binary": {func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"stop": {0xff}} }, store.ErrStopped},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			s.edit(test.put)
			c := s.open(t, "qwen", "tuner-0")
			if d, err := c.Load(t.Context()); !errors.Is(err, test.want) || d != nil {
				t.Errorf("load: got %v, %v, want %v", d, err, test.want)
			}
			if u := <-c.Watch(t.Context()); !errors.Is(u.Err, test.want) {
				t.Errorf("watch: got %+v, want %v", u, test.want)
			}
			before := s.current().Data["parameters.json"]
			if err := c.Swap(t.Context(), document(1, 64)); errors.Is(test.want, store.ErrNotFound) != (err == nil) {
				t.Errorf("swap: got %v", err)
			}
			if after := s.current().Data["parameters.json"]; test.want != store.ErrNotFound && after != before {
				t.Errorf("%q was written over", before)
			}
		})
	}
}

func TestHostileCheckpoints(t *testing.T) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	w.Close()
	for name, packed := range map[string][]byte{"empty": {}, "no gzip": []byte("{}"), "cut": bomb.Bytes()[:100], "bomb": bomb.Bytes()} {
		s := startServer(t)
		s.edit(func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{configmap.CheckpointKey: packed} })
		if got, err := s.open(t, "qwen", "").LoadCheckpoint(t.Context()); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %d bytes, %v, want it refused", name, len(got), err)
		}
	}
}

// What others keep in the ConfigMap stays, whenever they write it.
func TestForeignKeysStay(t *testing.T) {
	s := startServer(t)
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["notes"] = "before"; cm.Labels = map[string]string{"team": "a"} })
	c := s.open(t, "qwen", "tuner-0")
	for revision := range int64(3) {
		if err := c.Swap(t.Context(), document(revision+1, 1024)); err != nil {
			t.Fatal(err)
		}
		s.edit(func(cm *corev1.ConfigMap) { cm.Data["notes"] += "+" })
		if err := c.SaveCheckpoint(t.Context(), []byte("state")); err != nil {
			t.Fatal(err)
		}
		if err := c.SaveStatus(t.Context(), "doing: nothing\n"); err != nil {
			t.Fatal(err)
		}
	}
	cm := s.current()
	if cm.Data["notes"] != "before+++" || cm.Labels["team"] != "a" || cm.Data["status.yaml"] != "doing: nothing\n" {
		t.Errorf("got %v, %v", cm.Data, cm.Labels)
	}
}

// A write from what was seen costs one request, not two.
func TestWritesDoNotReadFirst(t *testing.T) {
	s := startServer(t)
	c := s.open(t, "qwen", "tuner-0")
	if err := c.Swap(t.Context(), document(1, 1024)); err != nil {
		t.Fatal(err)
	}
	before := s.reads
	if err := errors.Join(c.Swap(t.Context(), document(2, 64)), c.SaveCheckpoint(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if s.reads != before {
		t.Errorf("%d reads for two writes", s.reads-before)
	}
}

// An edit that keeps the revision is seen by its content.
func TestSwapMeetsAnEditWithoutANewRevision(t *testing.T) {
	s := startServer(t)
	c := s.open(t, "qwen", "tuner-0")
	if err := c.Swap(t.Context(), document(1, 1024)); err != nil {
		t.Fatal(err)
	}
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = formatted(t, document(1, 4096)) })
	if err := c.Swap(t.Context(), document(2, 64)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if d, err := c.Load(t.Context()); err != nil || d.Baseline.MinExternalReusableTokens != 4096 {
		t.Errorf("got %v, %v, want the edit", d, err)
	}
}

// The second tuner has the pool; the first can write nothing any more, and says so.
func TestTakingOverFencesTheFormer(t *testing.T) {
	s := startServer(t)
	s.edit(func(cm *corev1.ConfigMap) { cm.Data["parameters.json"] = formatted(t, document(1, 1024)) })
	first, second := s.open(t, "qwen", "tuner-0"), s.open(t, "qwen", "tuner-1")
	for _, c := range []*configmap.Store{first, second} {
		if _, err := c.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"swap":       first.Swap(t.Context(), document(2, 64)),
		"checkpoint": first.SaveCheckpoint(t.Context(), []byte("old")),
		"status":     first.SaveStatus(t.Context(), "old"),
	} {
		if !errors.Is(err, configmap.ErrTakenOver) || !strings.Contains(err.Error(), `"tuner-1"`) {
			t.Errorf("%s of the first: got %v, want ErrTakenOver by tuner-1", what, err)
		}
	}
	if _, err := first.Load(t.Context()); !errors.Is(err, configmap.ErrTakenOver) {
		t.Errorf("load of the first: got %v, want ErrTakenOver", err)
	}
	if err := second.Swap(t.Context(), document(2, 2048)); err != nil {
		t.Errorf("swap of the second: %v", err)
	}
}

func TestHeldByServerSideApply(t *testing.T) {
	apply := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		if err := f.UnmarshalJSON([]byte(fields)); err != nil {
			t.Fatal(err)
		}
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: f}
	}
	const owned = `{"f:data":{"f:parameters.json":{}}}`
	for name, test := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		held  bool
	}{
		"applied":           {apply("flux", metav1.ManagedFieldsOperationApply, owned), true},
		"edited":            {apply("kubectl-edit", metav1.ManagedFieldsOperationUpdate, owned), false},
		"our own":           {apply(configmap.FieldManager, metav1.ManagedFieldsOperationApply, owned), false},
		"other key applied": {apply("flux", metav1.ManagedFieldsOperationApply, `{"f:data":{".":{},"f:notes":{}}}`), false},
		"no fields":         {metav1.ManagedFieldsEntry{Manager: "flux", Operation: metav1.ManagedFieldsOperationApply}, false},
		"broken fields":     {apply("flux", metav1.ManagedFieldsOperationApply, `{"f:data":1}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			s.edit(func(cm *corev1.ConfigMap) {
				cm.Data["parameters.json"] = formatted(t, document(1, 1024))
				cm.ManagedFields = []metav1.ManagedFieldsEntry{test.entry}
			})
			c := s.open(t, "qwen", "tuner-0")
			_, err := c.Load(t.Context())
			if errors.Is(err, configmap.ErrHeld) != test.held || !test.held && err != nil {
				t.Errorf("load: got %v, held %t", err, test.held)
			}
			if err := c.Swap(t.Context(), document(2, 64)); errors.Is(err, configmap.ErrHeld) != test.held || !test.held && err != nil {
				t.Errorf("swap: got %v, held %t", err, test.held)
			}
			if _, err := s.open(t, "qwen", "").Load(t.Context()); err != nil {
				t.Errorf("a reader: %v", err)
			}
		})
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for reason, says := range map[metav1.StatusReason]string{
		metav1.StatusReasonForbidden:             "a Role must allow it by name",
		metav1.StatusReasonRequestEntityTooLarge: "1 MiB at most",
		metav1.StatusReasonInternalError:         "ConfigMap llm/qwen",
	} {
		s := startServer(t)
		s.edit(func(cm *corev1.ConfigMap) {})
		c := s.open(t, "qwen", "tuner-0")
		if _, err := c.Load(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		s.setRefuse(func(*http.Request) *metav1.Status { return failure(400, reason) })
		if err := c.Swap(t.Context(), document(1, 64)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want it to say %q", reason, err, says)
		}
	}
}

func TestAMissingConfigMapThatCannotBeMade(t *testing.T) {
	s := startServer(t)
	s.setRefuse(func(r *http.Request) *metav1.Status {
		if r.Method == http.MethodPost {
			return failure(403, metav1.StatusReasonForbidden)
		}
		return nil
	})
	err := s.open(t, "qwen", "tuner-0").Swap(t.Context(), document(1, 64))
	if err == nil || !strings.Contains(err.Error(), "kubectl create configmap -n llm qwen") {
		t.Errorf("got %v, want it to say what to make", err)
	}
}
