//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// fleet is everything: API server, engines, two replicas of the EPP, and the
// parameter file they watch.
type fleet struct {
	t       *testing.T
	api     *apiServer
	engines []*engine
	epps    []*epp
	path    string
	file    *store.File
}

const config = `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: random-picker
- type: metrics-data-source
- type: core-metrics-extractor
- type: endpoint-notification-source
- type: kv-events-producer
  parameters: {port: %d, replayPort: %d, tokenizer: {timeout: 350ms}}
- type: selective-kv-policy
  parameters:
    loadPolicy: threshold
    minExternalReusableTokens: 100
    maxWaitingRequests: 8
    prefixMatchInfoProducerName: kv-events-producer
    probeFraction: 0
    tuning: {file: %s}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: random-picker
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors:
    - pluginRef: core-metrics-extractor
    - pluginRef: selective-kv-policy
  - pluginRef: endpoint-notification-source
    extractors:
    - pluginRef: kv-events-producer
    - pluginRef: selective-kv-policy
`

const replicas, modelServers = 2, 3

func startFleet(t *testing.T) *fleet {
	t.Helper()
	binary := build(t, "..", "./cmd/epp")
	f := &fleet{t: t, path: filepath.Join(t.TempDir(), "qwen.json")}
	var kubeconfig string
	f.api, kubeconfig = startAPIServer(t, enginePort)
	for i := range modelServers {
		e := startEngine(t, i)
		f.engines = append(f.engines, e)
		f.api.addPod(e.name, e.ip)
	}
	var err error
	if f.file, err = store.OpenFile(store.FileOptions{Path: f.path, Pool: poolName}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "epp.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, eventPort, replayPort, f.path), 0o600); err != nil {
		t.Fatal(err)
	}
	for range replicas {
		f.epps = append(f.epps, startEPP(t, binary, kubeconfig, path, ports(3)))
	}
	for _, e := range f.epps {
		f.ready(e)
	}
	return f
}

// part runs a test of its own on the fleet.
func (f *fleet) part(name string, run func(*testing.T)) {
	whole := f.t
	whole.Run(name, func(t *testing.T) {
		f.reportTo(t)
		defer f.reportTo(whole)
		run(t)
	})
}

func (f *fleet) reportTo(t *testing.T) {
	f.t = t
	for _, e := range f.engines {
		e.t = t
	}
	for _, e := range f.epps {
		e.t = t
	}
}

// ready waits until a replica knows every engine and what it holds.
func (f *fleet) ready(e *epp) {
	f.t.Helper()
	eventually(f.t, e.name+" is ready", 30*time.Second, func() bool {
		s, err := e.scrape()
		return err == nil && s.sum("selective_kv_evidence_endpoints_connected") == modelServers && s.sum("selective_kv_evidence_blocks") >= modelServers*cpuBlocks && s.sum("selective_kv_endpoints") == modelServers
	})
}

// write puts parameters in the file.
func (f *fleet) write(minimum store.Tokens, waiting int) int64 {
	f.t.Helper()
	next := &store.Document{APIVersion: store.APIVersion, Pool: poolName, Revision: 1, UpdatedAt: time.Now().UTC(),
		Baseline: store.Params{MinExternalReusableTokens: minimum, MaxWaitingRequests: waiting}}
	last, err := f.file.Load(context.Background())
	if err == nil {
		next.Revision = last.Revision + 1
	}
	if err := f.file.Swap(context.Background(), next); err != nil {
		f.t.Fatal(err)
	}
	return next.Revision
}

// arrived is what came of a request at the engines.
func (f *fleet) arrived(id string) (arrival, bool) {
	for _, e := range f.engines {
		e.mu.Lock()
		a, found := e.arrived[id]
		e.mu.Unlock()
		if found {
			return a, true
		}
	}
	return arrival{}, false
}

// send takes one request through a replica and returns what the engine received.
// On a busy machine the tokenizer may answer too late, and the request goes out
// without evidence: then it is sent again.
func (f *fleet) send(e *epp, path, body string) arrival {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		late := e.late()
		a := f.sendOnce(ctx, e, path, body)
		if e.late() == late || ctx.Err() != nil {
			return a
		}
	}
}

// late is how many requests the replica could not tokenize in time.
func (e *epp) late() float64 {
	s, err := e.scrape()
	if err != nil {
		return -1 // it will be there by and by
	}
	return s.sum("selective_kv_evidence_requests_total", "result=tokenizer_timeout")
}

func (f *fleet) sendOnce(ctx context.Context, e *epp, path, body string) arrival {
	f.t.Helper()
	id := newID()
	_, err := e.do(ctx, id, path, []byte(body))
	// A channel to a replica that has just restarted may still be backing off.
	for errors.Is(err, errPicker) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		_, err = e.do(ctx, id, path, []byte(body))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	a, found := f.arrived(id)
	if !found {
		f.t.Fatalf("request %s arrived nowhere", id)
	}
	return a
}

// persist sends as a gateway with retries does, beginning with one replica: to
// another, and to another engine. It returns the number of retries.
func (f *fleet) persist(ctx context.Context, replica int, body string) (retries int, err error) {
	for ; ; retries++ {
		_, err := f.epps[(replica+retries)%len(f.epps)].do(ctx, newID(), completions, []byte(body))
		var answer *refused
		if err == nil || errors.As(err, &answer) && answer.status < 500 || ctx.Err() != nil {
			return retries, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const completions, chat = "/v1/completions", "/v1/chat/completions"

func completion(prompt string) string {
	quoted, _ := json.Marshal(prompt)
	return `{"model":"m","prompt":` + string(quoted) + `}`
}

// limited says whether the engine was told not to load.
func limited(t *testing.T, a arrival) bool {
	t.Helper()
	var in struct {
		Params map[string]json.Number `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(a.body, &in); err != nil {
		t.Fatal(err)
	}
	limit, found := in.Params["max_load_tokens"]
	if found && limit != "0" {
		t.Fatalf("max_load_tokens is %s", limit)
	}
	return found
}
