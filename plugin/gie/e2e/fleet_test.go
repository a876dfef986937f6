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
	api     *apiServer // nil without Kubernetes
	engines []*engine
	epps    []*epp
	path    string
	file    *store.File
	// another starts one more replica, which lives as long as the test t.
	another func(t *testing.T, env []string, args ...string) *epp
	// knows says that a replica knows every engine and what it holds.
	knows func(*epp) bool
	// late counts the requests of a replica whose tokens were not known in time.
	late func(scrape) float64
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
	f := newFleet(t)
	f.knows, f.late = knowsEvents, lateTokens
	var kubeconfig string
	f.api, kubeconfig = startAPIServer(t, enginePort)
	for i := range modelServers {
		e := startEngine(t, i, false)
		f.engines = append(f.engines, e)
		f.api.addPod(e.name, e.ip)
	}
	path := written(t, "epp.yaml", fmt.Sprintf(config, eventPort, replayPort, f.path))
	f.another = func(t *testing.T, env []string, args ...string) *epp {
		return startEPP(t, binary, ports(3), append(env, "KUBECONFIG="+kubeconfig), append(args, "--config-file", path)...)
	}
	for range replicas {
		f.epps = append(f.epps, f.another(t, nil))
	}
	for _, e := range f.epps {
		f.ready(e)
	}
	return f
}

// newFleet has a parameter file, and nothing else yet.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, path: filepath.Join(t.TempDir(), "qwen.json")}
	var err error
	if f.file, err = store.OpenFile(store.FileOptions{Path: f.path, Pool: poolName}); err != nil {
		t.Fatal(err)
	}
	return f
}

// written is the path of a new file.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
	eventually(f.t, e.name+" is ready", 30*time.Second, func() bool { return f.knows(e) })
}

func knowsEvents(e *epp) bool {
	s, err := e.scrape()
	return err == nil && s.sum("selective_kv_evidence_endpoints_connected") == modelServers && s.sum("selective_kv_evidence_blocks") >= modelServers*cpuBlocks && s.sum("selective_kv_endpoints") == modelServers
}

// lateTokens are the requests without evidence, but for those that can have none.
func lateTokens(s scrape) float64 {
	return s.sum("selective_kv_decisions_total", "reason=no_evidence") - s.sum("selective_kv_evidence_requests_total", "result=multimodal")
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
		late := f.missed(e)
		a := f.sendOnce(ctx, e, path, body)
		if f.missed(e) == late {
			return a
		}
	}
}

func (f *fleet) missed(e *epp) float64 {
	if f.late == nil {
		return 0
	}
	s, err := e.scrape()
	if err != nil {
		f.t.Fatal(err)
	}
	return f.late(s)
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
