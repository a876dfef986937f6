package tuner

import (
	"strings"
	"testing"
	"time"
)

const discovering = `
prometheus: {url: "http://prometheus:9090"}
kubernetes: {discover: {configMaps: kvtuner.io/pool, selector: 'namespace="{namespace}",model="{pool}"'}}
defaults: {mode: propose, trial: {block: 5m}}
`

func found(overrides string) Found {
	return Found{Pool: "qwen", Document: ConfigMapConfig{Namespace: "llm", Name: "kvtuner-qwen"}, Overrides: overrides}
}

func TestAdoptOverridesTheDefaults(t *testing.T) {
	c, err := load(t, discovering)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Adopt(found(""))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "qwen" || p.Mode != Propose || p.Trial.Block != 5*time.Minute || p.Selector != `namespace="llm",model="qwen"` {
		t.Errorf("without overrides: %+v", p)
	}
	if want := (ConfigMapConfig{Namespace: "llm", Name: "kvtuner-qwen", Key: "parameters.json"}); p.Store.ConfigMap != want || p.Store.File != "" {
		t.Errorf("its document is in %+v", p.Store)
	}
	p, err = c.Adopt(found("mode: enforce\ninitial: 64+2\nguard: {ttft: 10s}\nselector: 'app=\"a\"'"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != Enforce || p.Initial.MinExternalReusableTokens != 64 || p.Guard.TTFT != 10*time.Second || p.Guard.Within != 0.9 || p.Selector != `app="a"` {
		t.Errorf("with overrides: %+v", p)
	}
	if p, err = c.Adopt(found("")); err != nil || p.Mode != Propose {
		t.Errorf("one pool's overrides reach another: %+v, %v", p, err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	c, err := load(t, discovering)
	if err != nil {
		t.Fatal(err)
	}
	for overrides, says := range map[string]string{
		"mode: on":                          `mode: "on" is not allowed`,
		"tyop: 1":                           "tyop",
		"- a":                               "not YAML",
		"Name: x":                           "Name: the object itself says it",
		"store: {file: /etc/passwd}":        "store: the object itself says it",
		"trial: {block: 150}":               "write it with a unit",
		`selector: ""`:                      "selector: is empty",
		`selector: '} or up{'`:              "selector",
		"a: " + strings.Repeat("x", 16<<10): "16384 at most",
		"1: a":                              "1",
		"bounds: {maxWaitingRequests: {min: 9}}\ninitial: 64+8": "outside bounds",
	} {
		if _, err := c.Adopt(found(overrides)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want it to say %q", overrides, err, says)
		}
	}
	f := found("")
	f.Pool = "not a name!"
	if _, err := c.Adopt(f); err == nil {
		t.Error("an impossible name was accepted")
	}
}

func TestDiscoveryIsCheckedAtLoad(t *testing.T) {
	if _, err := load(t, strings.Replace(discovering, "propose", "on", 1)); err == nil || !strings.Contains(err.Error(), `pool "defaults": mode: "on"`) {
		t.Errorf("impossible defaults: %v", err)
	}
	if c, err := load(t, discovering); err != nil || len(c.Pools) != 0 || !c.UsesKubernetes() {
		t.Errorf("no static pools: %+v, %v", c.Pools, err)
	}
	if _, err := load(t, "prometheus: {url: 'http://p'}\n"); err == nil || !strings.Contains(err.Error(), "kubernetes.discover") {
		t.Errorf("no pools at all: %v", err)
	}
}

func FuzzAdopt(f *testing.F) {
	f.Add("mode: enforce")
	f.Add("a: &a [*a]")
	f.Add("{bounds: {minExternalReusableTokens: {min: inf}}}")
	c := Config{Kubernetes: KubernetesConfig{Discover: DiscoverConfig{ConfigMaps: "x", Selector: `a="{pool}"`}}}
	f.Fuzz(func(t *testing.T, overrides string) {
		p, err := c.Adopt(found(overrides))
		if err == nil && (p.Name != "qwen" || p.Store.ConfigMap.Name != "kvtuner-qwen" || p.Store.File != "" || p.Validate() != nil) {
			t.Errorf("%q made %+v", overrides, p)
		}
	})
}
