package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

const configReferenceFile = "../../docs/configuration.md"

// TestConfigReferenceIsCurrent compares docs/configuration.md with the code; with
// -update it writes the file. Settings, defaults and what is said of them are those
// of deploy/kvtuner.yaml, whose completeness and defaults other tests hold against
// the code; presets and checks are the code's own tables.
func TestConfigReferenceIsCurrent(t *testing.T) {
	want := configReference(t)
	if *update {
		if err := os.WriteFile(configReferenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configReferenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/configuration.md is out of date; go test ./cmd/kvtuner -run TestConfigReference -update (-code +file):\n%s", diff)
	}
}

func configReference(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Configuration reference

Written from the code by `+"`go test ./cmd/kvtuner -run TestConfigReference -update`"+`.
[deploy/kvtuner.yaml](../deploy/kvtuner.yaml) is the same as a file to copy.

Unknown settings and impossible values are errors, all of them reported at once.
Durations have a unit, such as `+"`150s`"+`. What is under `+"`defaults`"+` holds for all pools,
and each entry of `+"`pools`"+` may override it. Every setting that is no list can be
overridden by the environment: its path in upper case, dots as underscores, after
%[1]s_, such as `+"`%[1]s_PROMETHEUS_URL`"+` or `+"`%[1]s_DEFAULTS_MODE`"+`.

| setting | default | meaning, unit, range |
|---|---|---|
`, tuner.EnvPrefix)
	r := configTable{b: &b}
	r.mapping(document.Content[0], "", "")
	fmt.Fprint(&b, "\n## Presets\n\nValues of `metrics.preset`; see [prometheus.md](prometheus.md).\n\n| preset | is | modes |\n|---|---|---|\n")
	for _, p := range tuner.Presets() {
		modes := "all"
		if p.ObserveOnly != "" {
			modes = "observe only: " + p.ObserveOnly
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, p.About, modes)
	}
	fmt.Fprint(&b, "\n## Checks\n\nWhat `kvtuner check` looks at, in order; the daemon does, too, and `kvtuner status` shows what is amiss.\n\n| check | looks whether |\n|---|---|\n")
	for _, c := range preflight.Checks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c[0], c[1])
	}
	return b.Bytes()
}

// configTable writes a row a setting.
type configTable struct{ b *bytes.Buffer }

// mapping writes the settings of a section, under a row for what is said of the whole
// section. A setting without a comment of its own belongs to the comment of the one
// before it, or of the section, whose row is told.
func (r configTable) mapping(node *yaml.Node, path, told string) {
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		section, list := value.Kind == yaml.MappingNode && !isRange(value), value.Kind == yaml.SequenceNode && len(value.Content) > 0
		if list {
			name += "[]"
		}
		about := commentText(key.HeadComment)
		switch {
		case about != "":
			told = name
		case told != "":
			about = fmt.Sprintf("see `%s`", told)
		}
		switch {
		case !section && !list:
			r.row(name, standardOf(key, value), about)
			continue
		case told == name:
			r.row(name, "", about)
		}
		if list {
			value = value.Content[0]
		}
		r.mapping(value, name, told)
	}
}

func isRange(n *yaml.Node) bool {
	return len(n.Content) == 4 && n.Content[0].Value == "min" && n.Content[2].Value == "max"
}

// standardOf a setting is its default, which an example has not.
func standardOf(key, value *yaml.Node) string {
	if strings.Contains(value.LineComment+key.LineComment, "example") {
		return "none"
	}
	return fmt.Sprintf("`%s`", inline(value))
}

func (r configTable) row(name, standard, about string) {
	about = strings.ReplaceAll(strings.ReplaceAll(about, "|", `\|`), "<", "&lt;")
	fmt.Fprintf(r.b, "| `%s` | %s | %s |\n", name, standard, about)
}

func inline(n *yaml.Node) string {
	switch {
	case isRange(n):
		return fmt.Sprintf("{min: %s, max: %s}", n.Content[1].Value, n.Content[3].Value)
	case n.Kind == yaml.SequenceNode:
		return "[]"
	case n.Value == "":
		return `""`
	}
	return n.Value
}

var commentMarks = regexp.MustCompile(`(?m)^# ?`)

func commentText(s string) string {
	paragraphs := strings.Split(s, "\n\n") // the last stands right above the key
	return strings.Join(strings.Fields(commentMarks.ReplaceAllString(paragraphs[len(paragraphs)-1], "")), " ")
}
