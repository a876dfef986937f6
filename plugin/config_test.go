package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

func TestParseConfig(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := Config{LoadPolicy: Threshold, MinExternalReusableTokens: 1024}.withDefaults()
		change(&c)
		return c
	}
	tuning := func(change func(*Tuning)) Config {
		return with(func(c *Config) {
			c.ProbeFraction = DefaultProbeFraction
			c.Tuning = &Tuning{Bounds: store.DefaultBounds(), MaxAge: time.Hour}
			change(c.Tuning)
		})
	}
	for _, tt := range []struct {
		name, raw string
		want      Config
	}{
		{"upstream's disable", `{"loadPolicy":"disable","offloadPolicy":"disable"}`,
			Config{LoadPolicy: Disable, OffloadPolicy: Disable}.withDefaults()},
		{"upstream's threshold", `{"loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8,"prefixMatchInfoProducerName":"precise"}`,
			with(func(c *Config) { c.MaxWaitingRequests = 8; c.PrefixMatchInfoProducerName = "precise" })},
		{"offload alone", `{"offloadPolicy":"disable"}`, Config{OffloadPolicy: Disable}.withDefaults()},
		{"zeroes mean unset", `{"loadPolicy":"disable","minExternalReusableTokens":0,"maxWaitingRequests":0}`, Config{LoadPolicy: Disable}.withDefaults()},
		{"never load", `{"loadPolicy":"threshold","minExternalReusableTokens":"inf"}`,
			with(func(c *Config) { c.MinExternalReusableTokens = store.Never })},
		{"gate and probes", `{"loadPolicy":"threshold","minExternalReusableTokens":1024,"probeFraction":0.1,"probeWaitingFactor":1.5,"waitingSignal":"m","gate":{"halfLife":"1s","maxSampleAge":"2s"}}`,
			with(func(c *Config) {
				c.ProbeFraction, c.ProbeWaitingFactor, c.WaitingSignal = 0.1, 1.5, "m"
				c.Gate = Gate{HalfLife: time.Second, MaxSampleAge: 2 * time.Second}
			})},
		{"tuning by file", `{"loadPolicy":"threshold","minExternalReusableTokens":1024,"tuning":{"file":"/p.json","maxAge":"10m"}}`,
			tuning(func(t *Tuning) { t.File, t.MaxAge = "/p.json", 10*time.Minute })},
		{"tuning by ConfigMap", `{"loadPolicy":"threshold","minExternalReusableTokens":1024,"tuning":{"configMap":{"namespace":"n","name":"m"},
			"bounds":{"minExternalReusableTokens":{"min":64,"max":"inf"},"maxWaitingRequests":{"max":32}}}}`,
			tuning(func(t *Tuning) {
				t.ConfigMap = &ConfigMap{Namespace: "n", Name: "m", Key: DefaultConfigMapKey}
				t.Bounds.MinExternalReusableTokens.Min = 64
				t.Bounds.MaxWaitingRequests.Max = 32
			})},
		{"adaptive", `{"loadPolicy":"adaptive","minExternalReusableTokens":1024,"tuning":{"file":"p"}}`,
			func() Config { c := tuning(func(t *Tuning) { t.File = "p" }); c.LoadPolicy = Adaptive; return c }()},
		{"no probes despite tuning", `{"loadPolicy":"threshold","minExternalReusableTokens":1024,"probeFraction":0,"tuning":{"file":"p"}}`,
			func() Config { c := tuning(func(t *Tuning) { t.File = "p" }); c.ProbeFraction = 0; return c }()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := New(Options{Config: got, Pool: "p"}); err != nil {
				t.Errorf("what ParseConfig accepts, New refuses: %v", err)
			}
		})
	}
}

func TestParseConfigRefuses(t *testing.T) {
	const ok = `"loadPolicy":"threshold","minExternalReusableTokens":1024`
	for _, tt := range []struct {
		name, raw string
		want      []string // in this order, one error each
	}{
		{"no parameters", ``, []string{`parameters: "" is not allowed`}},
		{"null", `null`, []string{`parameters: null is not allowed, want a JSON object`}},
		{"not UTF-8", "{\"waitingSignal\":\"\xff\"}", []string{"UTF-8"}},
		{"not JSON", `{"loadPolicy":`, []string{"a complete JSON object"}},
		{"something after it", `{"loadPolicy":"disable"} {}`, []string{"nothing after it"}},
		{"both preserve", `{}`, []string{`loadPolicy: preserve is not allowed, want another than "preserve"`}},
		{"unknown load policy", `{"loadPolicy":"sometimes"}`, []string{`loadPolicy: sometimes is not allowed, want "preserve", "disable", "threshold" or "adaptive"`}},
		{"adaptive without tuning", `{"loadPolicy":"adaptive","minExternalReusableTokens":1024}`, []string{`loadPolicy: adaptive is not allowed, want "threshold" without tuning`}},
		{"adaptive without minimum", `{"loadPolicy":"adaptive","tuning":{"file":"f"}}`, []string{`minExternalReusableTokens: 0 is not allowed`}},
		{"unknown offload policy", `{"offloadPolicy":"sometimes"}`, []string{`offloadPolicy: sometimes is not allowed, want "preserve" or "disable"`}},
		{"threshold for offload", `{"offloadPolicy":"threshold"}`, []string{`offloadPolicy: threshold is not allowed`}},
		{"threshold without minimum", `{"loadPolicy":"threshold"}`, []string{`minExternalReusableTokens: 0 is not allowed, want a whole number of 1 or more, or "inf"`}},
		{"minimum of 0", `{"loadPolicy":"threshold","minExternalReusableTokens":0}`, []string{`minExternalReusableTokens: 0`}},
		{"negative minimum", `{"loadPolicy":"threshold","minExternalReusableTokens":-1}`, []string{`minExternalReusableTokens: -1`}},
		{"broken minimum", `{"loadPolicy":"threshold","minExternalReusableTokens":1.5}`, []string{`minExternalReusableTokens: 1.5`}},
		{"negative limit", `{` + ok + `,"maxWaitingRequests":-1}`, []string{`maxWaitingRequests: -1 is not allowed, want a whole number from 0 (no gate) to 1023`}},
		{"limit beyond the gate", `{` + ok + `,"maxWaitingRequests":1024}`, []string{`maxWaitingRequests: 1024`}},
		{"limit without threshold", `{"loadPolicy":"disable","maxWaitingRequests":8}`, []string{`maxWaitingRequests: 8 is not allowed, want no limit unless loadPolicy is "threshold"`}},
		{"unknown field", `{` + ok + `,"maxWaiting":8}`, []string{`maxWaiting: an unknown field is not allowed, want only loadPolicy, offloadPolicy,`}},
		{"field in another case", `{"loadpolicy":"disable","offloadPolicy":"disable"}`, []string{`loadpolicy: an unknown field`}},
		{"nested unknown field", `{` + ok + `,"tuning":{"file":"f","bounds":{"minExternalReusableTokens":{"least":1}}}}`, []string{`tuning.bounds.minExternalReusableTokens.least: an unknown field is not allowed, want only min, max`}},
		{"repeated field", `{"loadPolicy":"disable","loadPolicy":"threshold"}`, []string{`loadPolicy: a second value is not allowed, want each field once`}},
		{"repeated nested field", `{` + ok + `,"gate":{"halfLife":"1s","halfLife":"2s"}}`, []string{`gate.halfLife: a second value`}},
		{"null field", `{` + ok + `,"probeFraction":null}`, []string{`probeFraction: null`}},
		{"probe fraction", `{` + ok + `,"probeFraction":0.11}`, []string{`probeFraction: 0.11 is not allowed, want a number from 0 to 0.1`}},
		{"negative probe fraction", `{` + ok + `,"probeFraction":-0.1}`, []string{`probeFraction: -0.1`}},
		{"probes without threshold", `{"loadPolicy":"disable","probeFraction":0.01}`, []string{`probeFraction: 0.01 is not allowed, want 0 unless`}},
		{"probe factor", `{` + ok + `,"probeWaitingFactor":0.5}`, []string{`probeWaitingFactor: 0.5 is not allowed, want a number from 1 to 100`}},
		{"waiting signal", `{` + ok + `,"waitingSignal":"a b"}`, []string{`waitingSignal: a b is not allowed, want the name of a metric`}},
		{"half-life", `{` + ok + `,"gate":{"halfLife":"0s"}}`, []string{`gate.halfLife: 0s is not allowed, want a duration from 100ms to 5m0s`}},
		{"sample age", `{` + ok + `,"gate":{"maxSampleAge":"2h"}}`, []string{`gate.maxSampleAge: 2h0m0s is not allowed, want a duration from 50ms to 1m0s`}},
		{"duration without unit", `{` + ok + `,"gate":{"halfLife":2}}`, []string{`gate.halfLife: 2 is not allowed, want a duration such as "500ms"`}},
		{"tuning without place", `{` + ok + `,"tuning":{}}`, []string{`tuning: neither file nor configMap is not allowed, want one of them`}},
		{"tuning with two places", `{` + ok + `,"tuning":{"file":"f","configMap":{"name":"m"}}}`, []string{`tuning: both file and configMap`}},
		{"tuning without threshold", `{"loadPolicy":"disable","probeFraction":0,"tuning":{"file":"f"}}`, []string{`tuning: set is not allowed, want no tuning unless loadPolicy is "threshold"`}},
		{"ConfigMap without name", `{` + ok + `,"tuning":{"configMap":{"key":""}}}`, []string{`tuning.configMap.name: ""`, `tuning.configMap.key: ""`}},
		{"maximum age", `{` + ok + `,"tuning":{"file":"f","maxAge":"2h"}}`, []string{`tuning.maxAge: 2h0m0s is not allowed, want a duration from 1s to 1h0m0s`}},
		{"empty bounds", `{` + ok + `,"tuning":{"file":"f","bounds":{"minExternalReusableTokens":{"min":8,"max":4}}}}`, []string{`tuning.bounds.minExternalReusableTokens.min: 8`}},
		{"everything at once", `{"loadPolicy":"x","offloadPolicy":"y","maxWaitingRequests":"z","probeFraction":7,"w":1}`,
			[]string{`maxWaitingRequests: "z"`, `w: an unknown field`, `loadPolicy: x`, `offloadPolicy: y`, `probeFraction: 7 is not allowed, want a number`, `probeFraction: 7 is not allowed, want 0 unless`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseConfig([]byte(tt.raw))
			if !errors.Is(err, store.ErrInvalid) || !cmp.Equal(c, Config{}) {
				t.Fatalf("%+v, %v, want an error that wraps store.ErrInvalid", c, err)
			}
			lines := strings.Split(strings.TrimPrefix(err.Error(), "read plugin parameters: "), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(lines), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("error %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"pool":                      {Config: threshold(1, 0)},
		"loadPolicy":                {Pool: "p"},
		"minExternalReusableTokens": {Pool: "p", Config: threshold(0, 0)},
		"maxWaitingRequests":        {Pool: "p", Config: threshold(1, -1)},
	} {
		if _, err := New(o); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
}

func TestNewLeavesItsConfigAlone(t *testing.T) {
	c := threshold(1, 0)
	c.Tuning = &Tuning{ConfigMap: &ConfigMap{Name: "m"}}
	if _, err := New(Options{Config: c, Pool: "p"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Tuning{ConfigMap: &ConfigMap{Name: "m"}}, c.Tuning); diff != "" {
		t.Errorf("caller's configuration changed (-want +got):\n%s", diff)
	}
}

// FuzzParseConfig holds what is accepted against encoding/json's reading of it.
func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		`{"loadPolicy":"threshold","minExternalReusableTokens":1024,"maxWaitingRequests":8}`,
		`{"loadPolicy":"threshold","minExternalReusableTokens":"inf","tuning":{"file":"f","bounds":{"maxWaitingRequests":{"min":2,"max":0}},"maxAge":"1m"},"probeFraction":0.05}`,
		`{"loadPolicy":"disable","offloadPolicy":"disable","waitingSignal":"m","gate":{"halfLife":"1s","maxSampleAge":"200ms"}}`,
		`{"offloadPolicy":"disable","offloadPolicy":"disable"}`, `{"\u006coadPolicy":"disable"}`, `{}`, `[]`, `{"tuning":{"configMap":{"name":"n"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("error %v does not wrap store.ErrInvalid", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted, but invalid: %v", err)
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		checkUnique(t, d)
		var loose struct {
			LoadPolicy         *LoadPolicy
			OffloadPolicy      *OffloadPolicy
			MaxWaitingRequests int
			ProbeFraction      *float64
			Tuning             *struct{ File string }
		}
		if err := json.Unmarshal(raw, &loose); err != nil {
			t.Fatalf("accepted, but encoding/json does not: %v", err)
		}
		if loose.LoadPolicy != nil && *loose.LoadPolicy != c.LoadPolicy || loose.OffloadPolicy != nil && *loose.OffloadPolicy != c.OffloadPolicy ||
			loose.MaxWaitingRequests != c.MaxWaitingRequests || loose.ProbeFraction != nil && *loose.ProbeFraction != c.ProbeFraction ||
			(loose.Tuning != nil) != (c.Tuning != nil) || loose.Tuning != nil && loose.Tuning.File != c.Tuning.File {
			t.Fatalf("%+v, but encoding/json reads %+v", c, loose)
		}
	})
}

// checkUnique fails if the next value holds an object with a name twice, or a
// name that no configuration has.
func checkUnique(t *testing.T, d *json.Decoder) {
	t.Helper()
	known := []string{"loadPolicy", "offloadPolicy", "minExternalReusableTokens", "maxWaitingRequests", "prefixMatchInfoProducerName",
		"tuning", "probeFraction", "probeWaitingFactor", "waitingSignal", "gate", "halfLife", "maxSampleAge", "file", "configMap",
		"namespace", "name", "key", "bounds", "min", "max", "maxAge"}
	token, err := d.Token()
	if err != nil || token != json.Delim('{') {
		return
	}
	names := map[any]bool{}
	for d.More() {
		name, _ := d.Token()
		if names[name] || !slices.Contains(known, name.(string)) {
			t.Fatalf("accepted, but %v is there twice or unknown", name)
		}
		names[name] = true
		checkUnique(t, d)
	}
	_, _ = d.Token()
}
