package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvtuner/kvtuner/tuner"
)

const exampleConfig = "../../deploy/kvtuner.yaml"

// minimalConfig holds what exampleConfig marks as examples, and nothing else.
const minimalConfig = `
prometheus: {url: "http://prometheus.monitoring.svc:9090"}
pools: [{name: default, selector: 'namespace="llm"', store: {file: /var/lib/kvtuner/default.json}}]
`

func TestExampleConfigStatesTheDefaults(t *testing.T) {
	example, err := tuner.LoadConfig(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	minimal, err := tuner.LoadConfig(writeFile(t, "minimal.yaml", minimalConfig))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(minimal, example, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(tuner.Config{})); diff != "" {
		t.Errorf("deploy/kvtuner.yaml states a value that is no default and not marked as an example (-default +stated):\n%s", diff)
	}
}

func TestExampleConfigHasEverySetting(t *testing.T) {
	text, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(settingNames(reflect.TypeFor[tuner.Config]()), settingNames(reflect.TypeFor[tuner.PoolConfig]())...) {
		if !regexp.MustCompile(`(?m)^[^#]*\b` + key + `:`).Match(text) {
			t.Errorf("deploy/kvtuner.yaml lacks the setting %s", key)
		}
	}
}

// settingNames lists the keys of a configuration struct and of those in it.
func settingNames(s reflect.Type) []string {
	var names []string
	for i := range s.NumField() {
		f := s.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
		if f.Type.Kind() == reflect.Struct && strings.HasSuffix(f.Type.PkgPath(), "/tuner") {
			names = append(names, settingNames(f.Type)...)
		}
	}
	return names
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
