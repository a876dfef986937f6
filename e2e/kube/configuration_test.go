package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvtuner/kvtuner/plugin/adapter"
	"github.com/kvtuner/kvtuner/tuner"
)

// checkConfiguration reads what a manifest brings as the daemon does.
func checkConfiguration(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kvtuner.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := tuner.LoadConfig(path)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if c.Kubernetes.Lease.Name == "" {
		t.Error("no Lease is configured")
	}
	for _, p := range c.Pools {
		if p.Store.ConfigMap.Name == "" || p.Mode == "" {
			t.Errorf("pool %s: %+v", p.Name, p.Store)
		}
	}
}

// TestEndpointPickerExamples: the plugin takes the parameters in the examples.
func TestEndpointPickerExamples(t *testing.T) {
	for name, tuned := range map[string]bool{"static": false, "observe": true, "enforce": true} {
		raw, err := os.ReadFile(filepath.Join(deploy, "epp", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Plugins []struct {
				Type       string          `json:"type"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"plugins"`
		}
		if err := yaml.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range config.Plugins {
			if p.Type != adapter.PluginType {
				continue
			}
			found = true
			c, err := adapter.ParseConfig(p.Parameters)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := c.Policy.Tuning != nil && c.Policy.Tuning.ConfigMap.Name == "kvtuner-default"; got != tuned {
				t.Errorf("%s: reads the ConfigMap: %t", name, got)
			}
		}
		if !found {
			t.Errorf("%s lacks the plugin", name)
		}
	}
}
