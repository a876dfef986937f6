package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kvtuner/kvtuner/store/configmap"
)

// notesKey is where others keep something, in the ConfigMap's data and labels.
const notesKey = "notes"

// apiServer is as much of a Kubernetes API server as one ConfigMap needs: get,
// create, and update with optimistic concurrency.
type apiServer struct {
	version int
	stored  *corev1.ConfigMap // nil if there is none
}

// answer is the transport of those who reach it.
func (s *apiServer) answer(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		if s.stored == nil {
			return refusal(r, http.StatusNotFound)
		}
		return respond(r, http.StatusOK, s.stored)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	next, ok := object.(*corev1.ConfigMap)
	switch {
	case err != nil || !ok:
		return refusal(r, http.StatusBadRequest)
	case r.Method == http.MethodPut && s.stored == nil:
		return refusal(r, http.StatusNotFound)
	case r.Method == http.MethodPost && s.stored != nil, r.Method == http.MethodPut && next.ResourceVersion != "" && next.ResourceVersion != s.stored.ResourceVersion:
		return refusal(r, http.StatusConflict)
	}
	s.keep(next)
	return respond(r, http.StatusOK, s.stored)
}

func (s *apiServer) keep(next *corev1.ConfigMap) {
	s.version++
	next.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	next.UID, next.ResourceVersion = types.UID("chaos"), strconv.Itoa(s.version)
	s.stored = next
}

// edit changes the ConfigMap as people do; it is made if there is none.
func (s *apiServer) edit(change func(*corev1.ConfigMap)) {
	next := s.stored.DeepCopy()
	if next == nil {
		next = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: poolName}}
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	change(next)
	s.keep(next)
}

func (s *apiServer) remove() {
	s.version++
	s.stored = nil
}

// touch what is not the tuner's: whoever has read the ConfigMap before cannot
// write it now.
func (s *apiServer) touch() {
	s.edit(func(cm *corev1.ConfigMap) {
		cm.Data[notesKey] += "+"
		metav1.SetMetaDataLabel(&cm.ObjectMeta, notesKey, fmt.Sprint(len(cm.Data[notesKey])))
	})
}

// manifest is the field manager of someone who applies the document.
const manifest = "flux"

// hold has the document applied from a manifest, or no longer.
func (s *apiServer) hold(on bool) {
	s.edit(func(cm *corev1.ConfigMap) {
		cm.ManagedFields = slices.DeleteFunc(cm.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manifest })
		if on {
			fields := fmt.Sprintf(`{"f:data":{"f:%s":{}}}`, configmap.DefaultKey)
			cm.ManagedFields = append(cm.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manifest, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields),
			})
		}
	})
}

func held(cm *corev1.ConfigMap) bool {
	return slices.ContainsFunc(cm.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manifest })
}

// reasons of the refusals that a client tells apart.
var reasons = map[int]metav1.StatusReason{
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
}

func refusal(r *http.Request, code int) (*http.Response, error) {
	return respond(r, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: http.StatusText(code),
	})
}

func respond(r *http.Request, code int, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)),
	}, nil
}
