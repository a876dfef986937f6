package llmd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

func TestParseConfig(t *testing.T) {
	for raw, parts := range map[string][]string{
		threshold:                               nil,
		`{"waitingSignal":"m",` + threshold[1:]: {"waitingSignal", "m", plugin.DefaultWaitingSignal},
		`{"profile":7,"waitingSignal":"m","nonsense":1}`: {"profile", "nonsense"},
	} {
		_, err := ParseConfig([]byte(raw))
		if (err != nil) != (parts != nil) || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("ParseConfig(%s): error %v, want one that wraps ErrInvalid: %v", raw, err, parts != nil)
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
	}
}

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
			if _, err := ParseConfig(p.Parameters); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if !found {
			t.Errorf("%s does not use the plugin", path)
		}
	}
}
