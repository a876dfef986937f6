package fleet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProfileRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := WriteProfile(&b, Published()); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProfile(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Published(), p); d != "" {
		t.Error(d)
	}
}

func TestProfileRefusals(t *testing.T) {
	var b bytes.Buffer
	if err := WriteProfile(&b, Published()); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	base := fmt.Sprintf(`"stepBase": %v`, Published().StepBase)
	cases := []struct{ name, from, to, want string }{
		{"not JSON", "{", "", "read profile"},
		{"no comma", base + ",", base, "line 18: invalid character"},
		{"list", good, "[]", "a JSON array; want an object with name"},
		{"text", base, `"stepBase": "fast"`, `parameter "stepBase": "\"fast\"" is not a number`},
		{"null", base, `"stepBase": null`, `parameter "stepBase": "null" is not a number`},
		{"overflow", base, `"stepBase": 1e999`, `parameter "stepBase": "1e999" is not a number`},
		{"twice", base, base + ", " + base, `parameter "stepBase" is there twice`},
		{"misspelt", `"stepBase"`, `"stepbase"`, "unknown parameter \"stepbase\"\nparameters missing: stepBase"},
		{"a list of parameters", good, `{"parameters": []}`, "parameters \"[]\": want an object"},
		{"number as name", `"qwen3-32b-8xh100"`, "5", "name: a JSON number; want text"},
		{"table in the name", `"qwen3-32b-8xh100"`, `"a|b"`, `name "a|b": want`},
		{"empty", good, "", "the file is empty; want a JSON object"},
		{"cut off", good, good[:100], "ends in the middle"},
		{"unknown field", `"name"`, `"title"`, "title"},
		{"unknown parameter", base, base + `, "turbo": 1`, `unknown parameter "turbo"`},
		{"missing parameter", base + ",", "", "missing: stepBase"},
		{"out of range", base, `"stepBase": -1`, "stepBase: -1 is outside"},
		{"fraction of an engine", `"replicas": 4`, `"replicas": 2.5`, "replicas: 2.5 is not a whole number"},
		{"no name", `"name": "` + Published().Name + `"`, `"name": ""`, "name \"\": want 1 to 100"},
		{"no model", `"model": "` + Published().Model + `"`, `"model": ""`, "model \"\": want 1 to 1000"},
		{"two documents", "\n}\n", "\n}{}", "more after the JSON object"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.from, c.to, 1)
			if text == good {
				t.Fatalf("case does not apply: %q not found", c.from)
			}
			_, err := ReadProfile(strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

func TestParametersAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	fields := map[*float64]string{}
	var p Profile
	for _, d := range Parameters() {
		if seen[d.Name] || d.Meaning == "" || d.Source == "" || d.Min >= d.Max {
			t.Errorf("%s: duplicate, or without meaning, source or range", d.Name)
		}
		seen[d.Name] = true
		if other, taken := fields[d.field(&p)]; taken {
			t.Errorf("%s and %s are the same field", d.Name, other)
		}
		fields[d.field(&p)] = d.Name
	}
}

// The profiles beside the embedded one are for --profile.
func TestEveryProfileFileIsValid(t *testing.T) {
	names, err := filepath.Glob("profiles/*.json")
	if err != nil || len(names) < 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ReadProfile(bytes.NewReader(b))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := strings.TrimSuffix(filepath.Base(name), ".json"); p.Name != want {
			t.Errorf("%s: named %q", name, p.Name)
		}
	}
}
