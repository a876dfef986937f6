package llmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// TestExamples: what the documentation tells to copy is accepted.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var example struct {
			Plugins []struct {
				Type       string
				Parameters json.RawMessage
			}
		}
		if err := yaml.Unmarshal(text, &example); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found := false
		for _, p := range example.Plugins {
			if p.Type != PluginType {
				continue
			}
			found = true
			if _, err := adapter.ParseConfig(p.Parameters); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if !found {
			t.Errorf("%s does not use the plugin", path)
		}
	}
}
