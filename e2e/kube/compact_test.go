package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// compact makes etcd go on without the API server and forget everything but the
// present, through the JSON that it speaks beside gRPC: what a watch has seen last
// is then too old to go on from.
func compact(t testing.TB) {
	t.Helper()
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	for range 100 {
		ask(t, "/v3/kv/put", map[string]any{"key": "aw==", "value": "dg=="}, nil)
	}
	ask(t, "/v3/kv/range", map[string]any{"key": "AA=="}, &now)
	ask(t, "/v3/kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, nil)
}

func ask(t testing.TB, path string, body any, into any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(plane.etcdURL+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("etcd %s: %v %s %s", path, err, response.Status, said)
	}
	if into != nil {
		if err := json.Unmarshal(said, into); err != nil {
			t.Fatal(err)
		}
	}
}
