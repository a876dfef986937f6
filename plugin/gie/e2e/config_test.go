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

// upstream is a configuration of the upstream plugin, without a data layer and
// without evidence. %s is what each test adds.
const upstream = `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: random-picker
- type: selective-kv-policy
  parameters: {loadPolicy: threshold, minExternalReusableTokens: 1024, maxWaitingRequests: 8%s}
`

// TestConfigurations starts replicas that are configured in other ways.
func TestConfigurations(t *testing.T) {
	binary := build(t, "..", "./cmd/epp")
	api, kubeconfig := startAPIServer(t, enginePort)
	server := startEngine(t, 0, false)
	api.addPod(server.name, server.ip)
	f := &fleet{t: t, engines: []*engine{server}}
	start := func(t *testing.T, config string) *epp {
		f.reportTo(t)
		e := startEPP(t, binary, ports(3), []string{"KUBECONFIG=" + kubeconfig}, "--config-file", written(t, "epp.yaml", config))
		eventually(t, "the pod is known", 30*time.Second, func() bool {
			s, err := e.scrape()
			return err == nil && s.sum("inference_pool_ready_pods") == 1
		})
		return e
	}

	t.Run("upstream's, without evidence", func(t *testing.T) {
		e := start(t, strings.Replace(upstream, "%s", "", 1))
		const sent = `{"kv_transfer_params":{"max_load_tokens":7},"model":"m","prompt":"p"}`
		if a := f.send(e, completions, sent); string(a.body) != sent {
			t.Errorf("arrived as %s", a.body)
		}
		e.shows(1, time.Second, "selective_kv_decisions_total", "reason=no_evidence")
		e.shows(1, time.Second, "selective_kv_endpoints") // fed by the request itself
	})

	t.Run("bodies that are not JSON", func(t *testing.T) {
		e := start(t, strings.Replace(upstream, "%s", "", 1)+"- type: passthrough-parser\nparser: {pluginRef: passthrough-parser}\n")
		sent := "--b\r\n\x00\xff\r\n--b--"
		if a := f.send(e, "/v1/audio/transcriptions", sent); string(a.body) != sent {
			t.Errorf("arrived as %q", a.body)
		}
		e.shows(1, time.Second, "selective_kv_adapter_skipped_total", "reason=raw_body")
	})

	t.Run("token IDs", func(t *testing.T) {
		withParser := strings.Replace(config, "- type: random-picker", "- type: openai-tokens-parser\n- type: random-picker", 1)
		e := start(t, fmt.Sprintf(withParser+"parser: {pluginRef: openai-tokens-parser}\n", eventPort, replayPort, filepath.Join(t.TempDir(), "qwen.json")))
		eventually(t, "the engine's blocks are known", 10*time.Second, func() bool {
			s, err := e.scrape()
			return err == nil && s.sum("selective_kv_evidence_blocks") >= cpuBlocks
		})
		for prompt, want := range map[string]bool{hot: false, cold: true} {
			ids, _ := json.Marshal(words(prompt))
			sent := `{"model":"m","prompt":` + string(ids) + `}`
			if a := f.send(e, completions, sent); limited(t, a) != want {
				t.Errorf("arrived as %.80s..., told not to load: want %v", a.body, want)
			}
		}
	})

	for _, name := range []string{"static.yaml", "tuned.yaml"} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("..", "examples", name))
			if err != nil {
				t.Fatal(err)
			}
			f.send(start(t, string(raw)), completions, completion(cold))
		})
	}

	for name, test := range map[string]struct{ added, want string }{
		"unknown field":  {", minReusable: 3", "minReusable"},
		"probe fraction": {", probeFraction: 2", "probeFraction"},
		"two documents":  {", tuning: {configMap: {name: kv}, file: /x}", "tuning"},
		"empty profile":  {", profile: ''", "profile"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			command := exec.CommandContext(ctx, binary, "--pool-name", poolName, "--tracing=false",
				"--config-text", strings.Replace(upstream, "%s", test.added, 1))
			command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
			defer diesWithTest(command)()
			out, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || ctx.Err() != nil || !bytes.Contains(out, []byte(test.want)) {
				t.Errorf("ended with %v and without naming %q: %s", err, test.want, out)
			}
		})
	}
}
