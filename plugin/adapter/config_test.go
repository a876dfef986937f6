package adapter

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// TestParseConfigUpstream holds the cases of the upstream plugin: what it
// accepts and rejects, so does this one, and the message names the field.
func TestParseConfigUpstream(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		refused   string // a field the error names; empty is accepted
	}{
		{"load disabled", `{"loadPolicy":"disable"}`, ""},
		{"offload disabled", `{"offloadPolicy":"disable"}`, ""},
		{"both disabled", `{"loadPolicy":"disable","offloadPolicy":"disable"}`, ""},
		{"threshold", `{"loadPolicy":"threshold","minExternalReusableTokens":1024}`, ""},
		{"threshold and gate", `{"loadPolicy":"threshold","offloadPolicy":"preserve","minExternalReusableTokens":1024,"maxWaitingRequests":8}`, ""},
		{"named producer", `{"loadPolicy":"threshold","minExternalReusableTokens":1,"prefixMatchInfoProducerName":"precise-prefix-cache-producer"}`, ""},
		{"no parameters", ``, "parameters"},
		{"null", `null`, "parameters"},
		{"empty", `{}`, "loadPolicy"},
		{"both preserve", `{"loadPolicy":"preserve","offloadPolicy":"preserve"}`, "loadPolicy"},
		{"unknown load policy", `{"loadPolicy":"sometimes"}`, "loadPolicy"},
		{"unknown offload policy", `{"offloadPolicy":"sometimes"}`, "offloadPolicy"},
		{"threshold for offload", `{"offloadPolicy":"threshold"}`, "offloadPolicy"},
		{"threshold without minimum", `{"loadPolicy":"threshold"}`, "minExternalReusableTokens"},
		{"zero minimum", `{"loadPolicy":"threshold","minExternalReusableTokens":0}`, "minExternalReusableTokens"},
		{"negative minimum", `{"loadPolicy":"threshold","minExternalReusableTokens":-1}`, "minExternalReusableTokens"},
		{"negative queue limit", `{"loadPolicy":"threshold","minExternalReusableTokens":1,"maxWaitingRequests":-1}`, "maxWaitingRequests"},
		{"queue limit without threshold", `{"loadPolicy":"disable","maxWaitingRequests":8}`, "maxWaitingRequests"},
		{"unknown field", `{"loadPolicy":"disable","loadPolcy":"x"}`, "loadPolcy"},
		{"wrong type", `{"loadPolicy":7}`, "loadPolicy"},
		{"not JSON", `{"loadPolicy"`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseConfig([]byte(test.raw))
			accepted := test.refused == "" && test.name != "not JSON"
			if accepted != (err == nil) {
				t.Fatalf("ParseConfig(%s) = %v, want accepted %v", test.raw, err, accepted)
			}
			if err != nil && !(errors.Is(err, store.ErrInvalid) && strings.Contains(err.Error(), test.refused)) {
				t.Errorf("error %q does not name %q", err, test.refused)
			}
		})
	}
}

func TestParseConfigOwnFields(t *testing.T) {
	const policy = `"loadPolicy":"threshold","minExternalReusableTokens":1024`
	want, err := plugin.ParseConfig([]byte(`{` + policy + `}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, raw string
		want      Config
		refused   []string
	}{
		{"neither", `{` + policy + `}`, Config{Policy: want}, nil},
		{"both", `{"pool":"qwen",` + policy + `,"profile":"decode"}`, Config{Policy: want, Pool: "qwen", Profile: "decode"}, nil},
		{"spaced", " { \"profile\" : \"a\\u0062\" , " + policy + " } ", Config{Policy: want, Profile: "ab"}, nil},
		{"own only", `{"profile":"x"}`, Config{}, []string{"loadPolicy"}},
		{"empty", `{"profile":"",` + policy + `}`, Config{}, []string{"profile"}},
		{"null", `{"pool":null,` + policy + `}`, Config{}, []string{"pool"}},
		{"number", `{"pool":7,` + policy + `}`, Config{}, []string{"pool", "7"}},
		{"twice", `{"pool":"a","pool":"b",` + policy + `}`, Config{}, []string{"pool", "not two"}},
		{"policy's field twice", `{"pool":"a","loadPolicy":"disable",` + policy + `}`, Config{}, []string{"loadPolicy"}},
		{"several faults", `{"pool":7,"loadPolicy":"x","nonsense":1}`, Config{}, []string{"pool", "loadPolicy", "nonsense"}},
		{"trailing bytes", `{"pool":"a",` + policy + `} {}`, Config{}, []string{"after"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseConfig([]byte(test.raw))
			if (err != nil) != (test.refused != nil) {
				t.Fatalf("error %v, want one: %v", err, test.refused != nil)
			}
			for _, part := range test.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"pool":"p","loadPolicy":"disable","profile":"x"}`))
	f.Add([]byte(`{"pool":"p"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err == nil && c.Policy.Validate() != nil {
			t.Errorf("ParseConfig(%q) accepts what Validate refuses", raw)
		}
	})
}
