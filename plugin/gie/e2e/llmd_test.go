//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// llmdConfig is a whole configuration of llm-d-router, without Kubernetes. The
// profiles are what each test adds.
const llmdConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: %q, watchFile: true}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://127.0.0.10:%d"}}}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSizeTokens: %d}
    kvEventsConfig: {topicFilter: "kv@", podDiscoveryConfig: {socketPort: %d}}
- {type: random-picker}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
- {type: endpoint-notification-source}
- type: selective-kv-policy
  parameters:
    loadPolicy: threshold
    minExternalReusableTokens: 100
    maxWaitingRequests: 8
    probeFraction: 0
    tuning: {file: %q}
%s
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}]
  - pluginRef: endpoint-notification-source
    extractors: [{pluginRef: precise-prefix-cache-producer}]
`

const together = `schedulingProfiles:
- name: default
  plugins: [{pluginRef: random-picker}]`

// apart has prefill and decode on engines of their own.
const apart = `- {type: prefill-filter}
- {type: decode-filter}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: random-picker}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: random-picker}]`

// llmdBinary is the Endpoint Picker of llm-d-router with the plugin.
func llmdBinary(t *testing.T) string {
	path := os.Getenv("EPP_LLMD")
	if path == "" {
		t.Skip("EPP_LLMD names no binary: make e2e-llmd LLM_D_ROUTER_SRC=<a checkout of llm-d-router>")
	}
	return path
}

// llmdFleet is a fleet without Kubernetes: its endpoints are in a file.
type llmdFleet struct {
	*fleet
	endpoints string
}

func startLLMD(t *testing.T, profiles string, replicas int, roles ...string) *llmdFleet {
	t.Helper()
	binary := llmdBinary(t)
	f := &llmdFleet{newFleet(t), filepath.Join(t.TempDir(), "endpoints.yaml")}
	f.late = lateEvidence
	f.knows = f.restoresEverywhere
	for i := range modelServers {
		f.engines = append(f.engines, startEngine(t, i, true))
	}
	f.list(f.engines, roles...)
	path := written(t, "epp.yaml", fmt.Sprintf(llmdConfig, f.endpoints, enginePort, blockSize, eventPort, f.path, profiles))
	for range replicas {
		f.epps = append(f.epps, startEPP(t, binary, ports(3), nil, "--config-file", path, "--allow-experimental-plugins"))
	}
	return f
}

// list replaces the file of endpoints, with the role of each: the router would
// read a file that is half written as one of fewer endpoints.
func (f *llmdFleet) list(engines []*engine, roles ...string) {
	f.t.Helper()
	var text strings.Builder
	text.WriteString("endpoints:\n")
	for i, e := range engines {
		fmt.Fprintf(&text, "- {name: %s, namespace: %s, address: %s, port: \"%d\"", e.name, namespace, e.ip, enginePort)
		if i < len(roles) {
			fmt.Fprintf(&text, ", labels: {llm-d.ai/role: %s}", roles[i])
		}
		text.WriteString("}\n")
	}
	if err := os.Rename(written(f.t, "endpoints.yaml", text.String()), f.endpoints); err != nil {
		f.t.Fatal(err)
	}
}

func lateEvidence(s scrape) float64 {
	return s.sum("selective_kv_decisions_total", "reason=no_evidence")
}

// restoresEverywhere asks with hot prompts: this Endpoint Picker does not say
// what it knows of an engine.
func (f *llmdFleet) restoresEverywhere(e *epp) bool {
	seen := map[string]bool{}
	for range 8 * modelServers {
		id := newID()
		if _, err := e.do(f.t.Context(), id, completions, []byte(completion(hot))); err != nil {
			return false
		}
		a, found := f.arrived(id)
		if !found || limited(f.t, a) {
			return false
		}
		seen[a.engine] = true
	}
	s, err := e.scrape()
	return err == nil && len(seen) == modelServers && s.sum("selective_kv_endpoints") == modelServers &&
		s.sum("selective_kv_decisions_total", "reason=reusable") >= modelServers
}

// TestLLMD is the router with its engines, each of which fills its own cache.
func TestLLMD(t *testing.T) {
	f := startLLMD(t, together, replicas)
	for _, e := range f.epps {
		f.ready(e)
	}
	f.part("Thresholds", f.testThresholds)
	f.write(100, 8)
	f.part("Bodies", f.testLLMDBodies)
	f.part("Parameters", f.testParameters)
	f.part("Gate", f.testGate)
	f.part("Responses", f.testResponses)
	f.part("Restarts", f.testRestarts)
	f.part("Overhead", f.testOverhead)
	f.part("Removal", f.testLLMDRemoval)
}

// testLLMDBodies: what this framework does otherwise with a body.
func (f *llmdFleet) testLLMDBodies(t *testing.T) {
	for _, test := range bodies() {
		f.testBody(test)
	}
	ids, _ := json.Marshal(words(cold))
	f.testBody(body{"token IDs", completions, `{"model":"m","prompt":` + string(ids) + `%s}`, ``, `{"max_load_tokens":0}`})
	f.part("as it came", func(t *testing.T) {
		const seed = `{"prompt":%s,"model":"m", "seed":9007199254740993}`
		sent := fmt.Sprintf(seed, quote(hot))
		const rewritten = `"seed":9007199254740992`
		switch got := string(f.send(f.epps[0], completions, sent).body); {
		case got == sent:
			t.Log("a body that needs no change arrives to the last byte as it came")
		case strings.Contains(got, rewritten):
			t.Log("this version writes every body anew")
		default:
			t.Errorf("arrived as %s", got)
		}
	})
}

// testLLMDRemoval: the series of an endpoint that is gone go with it.
func (f *llmdFleet) testLLMDRemoval(t *testing.T) {
	gone := f.engines[0]
	f.list(f.engines[1:])
	for _, e := range f.epps {
		e.shows(modelServers-1, 10*time.Second, "selective_kv_endpoints")
		e.forgot(namespace + "/" + gone.name)
	}
	for range 20 {
		if a := f.send(f.epps[0], completions, completion(hot)); a.engine == gone.name {
			t.Fatal("sent to an endpoint that is gone")
		}
	}
}

// TestLLMDCoordinator: with prefill apart, the decision goes to the decode
// engine, whose sidecar replaces it. That is said, and nothing that comes of it
// is put down to the decision.
func TestLLMDCoordinator(t *testing.T) {
	f := startLLMD(t, apart, 1, "prefill", "decode", "decode")
	e, streamed := f.epps[0], strings.TrimSuffix(completion(cold), "}")+`,"stream":true}`
	eventually(t, "a request is coordinated", 30*time.Second, func() bool {
		_, err := e.do(t.Context(), newID(), completions, []byte(streamed))
		s, scraped := e.scrape()
		return err == nil && scraped == nil && s.sum("selective_kv_adapter_faults_total", "reason=replaced_by_coordinator") > 0
	})
	for range 10 {
		if a := f.send(e, completions, streamed); a.engine == f.engines[0].name || !limited(t, a) {
			t.Errorf("arrived at %s as %s", a.engine, a.body)
		}
	}
	s, err := e.scrape()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.sum("selective_kv_adapter_faults_total", "reason=replaced_by_coordinator"); got < 11 {
		t.Errorf("%g of 11 requests counted", got)
	}
	for _, name := range []string{"selective_kv_request_ttft_seconds", "selective_kv_request_output_tokens", "selective_kv_cost_started_total"} {
		if got := s.sum(name); got != 0 {
			t.Errorf("%s is %g: it was put down to the decision", name, got)
		}
	}
}

// TestLLMDConfigurations starts what the documentation tells to copy, and what
// is refused.
func TestLLMDConfigurations(t *testing.T) {
	binary := llmdBinary(t)
	f := &llmdFleet{&fleet{t: t, engines: []*engine{startEngine(t, 0, true)}}, filepath.Join(t.TempDir(), "endpoints.yaml")}
	f.list(f.engines)
	withoutKubernetes := strings.NewReplacer(
		"plugins:\n- type: token-producer", fmt.Sprintf("plugins:\n- {type: file-discovery, parameters: {path: %q, watchFile: true}}\n- type: token-producer", f.endpoints),
		"dataLayer:\n", "dataLayer:\n  discovery: {pluginRef: file-discovery}\n")
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join("..", "..", "llmd", "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		return withoutKubernetes.Replace(string(raw))
	}
	const experimental = "--allow-experimental-plugins"
	for _, name := range []string{"static.yaml", "tuned.yaml"} {
		t.Run(name, func(t *testing.T) {
			f.reportTo(t)
			e := startEPP(t, binary, ports(3), nil, "--config-file", written(t, name, read(name)), experimental)
			eventually(t, "the endpoint is known", 30*time.Second, func() bool {
				_, err := e.do(t.Context(), newID(), completions, []byte(completion(cold)))
				return err == nil
			})
			e.shows(1, time.Second, "selective_kv_endpoints")
		})
	}
	for name, test := range map[string]struct {
		edits      []string // pairs of what is replaced and by what
		flag, want string
	}{
		"experimental":  {nil, "--v=0", experimental},
		"unknown field": {[]string{"maxWaitingRequests: 8", "minReusable: 3"}, experimental, "minReusable"},
		"no minimum":    {[]string{"minExternalReusableTokens: 1024", ""}, experimental, "minExternalReusableTokens"},
		"no producer":   {[]string{"maxWaitingRequests: 8", "prefixMatchInfoProducerName: nobody"}, experimental, "nobody"},
		"a signal without scrapes": {[]string{"maxWaitingRequests: 8", "waitingSignal: m",
			"  sources:\n  - pluginRef: metrics-data-source\n    extractors: [{pluginRef: core-metrics-extractor}]\n", "  injectDefaults: false\n  sources:\n"}, experimental, "metrics-data-source"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			text := strings.NewReplacer(test.edits...).Replace(read("static.yaml"))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			command := exec.CommandContext(ctx, binary, "--pool-name", poolName, "--tracing=false", "--config-text", text, test.flag)
			defer diesWithTest(command)()
			out, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || ctx.Err() != nil || !bytes.Contains(out, []byte(test.want)) {
				t.Errorf("ended with %v and without naming %q: %s", err, test.want, out)
			}
		})
	}
}
