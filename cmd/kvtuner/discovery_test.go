package main

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/kube"
)

func newSifter(t *testing.T) *discovery {
	t.Helper()
	c, err := tuner.LoadConfig(writeFile(t, "kvtuner.yaml", `
prometheus: {url: "http://prometheus:9090"}
kubernetes: {discover: {configMaps: kvtuner.io/pool, selector: 'pool="{pool}"'}}
pools: [{name: static, selector: 'a="b"', store: {configMap: {name: kvtuner-static}}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return &discovery{config: c, namespace: "llm"}
}

func object(name, pool, settings string) kube.Object {
	return kube.Object{Kind: "ConfigMap", Namespace: "llm", Name: name, UID: types.UID(name), Pool: pool, Settings: settings}
}

func written(o kube.Object) kube.Object {
	o.Written = true
	return o
}

// What two want, the configuration has before all, then the pool that is tuned, then
// the older object, which comes first.
func TestEachThingHasOneOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []kube.Object
		tuned   string // the object for which pool "a" is tuned
		wanted  string // objects
		says    string
	}{
		"different":          {[]kube.Object{object("x", "a", ""), object("y", "b", "")}, "", "x y", ""},
		"name":               {[]kube.Object{object("x", "a", ""), object("y", "a", "")}, "", "x", "the name a belongs to the pool of ConfigMap llm/x"},
		"name, one tuned":    {[]kube.Object{object("x", "a", ""), object("y", "a", "")}, "y", "y", "the name a belongs to the pool of ConfigMap llm/y"},
		"name, one written":  {[]kube.Object{object("x", "a", ""), written(object("y", "a", ""))}, "", "y", "the name a belongs to the pool of ConfigMap llm/y"},
		"name, static":       {[]kube.Object{object("x", "static", "")}, "", "", "the name static belongs to the pool of the configuration"},
		"document, static":   {[]kube.Object{object("kvtuner-static", "a", "")}, "", "", "ConfigMap llm/kvtuner-static belongs to the pool of the configuration"},
		"series":             {[]kube.Object{object("x", "a", ""), object("y", "b", `selector: 'pool="a"'`)}, "", "x", `the selector pool="a" belongs to`},
		"series, static":     {[]kube.Object{object("x", "a", `selector: 'a="b"'`)}, "", "", `the selector a="b" belongs to the pool of the configuration`},
		"refused owns none":  {[]kube.Object{object("x", "a", "mode: on"), object("y", "a", "")}, "", "y", `mode: "on"`},
		"tuned, but refused": {[]kube.Object{object("x", "a", ""), object("y", "a", "mode: on")}, "y", "x", `mode: "on"`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newSifter(t)
			d.found = map[string]adopted{"a": {object: types.UID(tc.tuned)}}
			wanted, refused := d.sift(tc.objects)
			var got []string
			for _, w := range wanted {
				got = append(got, w.object.Name)
			}
			if strings.Join(got, " ") != tc.wanted || len(wanted)+len(refused) != len(tc.objects) {
				t.Errorf("wanted %v, refused %v", got, refused)
			}
			if tc.says != "" && (len(refused) != 1 || !strings.Contains(refused[0].why, tc.says)) {
				t.Errorf("refused %v, want it to say %q", refused, tc.says)
			}
		})
	}
}

func TestPoolsAreBounded(t *testing.T) {
	var objects []kube.Object
	for n := range maxPools + 10 {
		objects = append(objects, object(fmt.Sprintf("cm-%d", n), fmt.Sprintf("p-%d", n), ""))
	}
	wanted, refused := newSifter(t).sift(objects)
	if len(wanted) != maxPools-1 || len(refused) != 11 || !strings.Contains(refused[0].why, "run another") {
		t.Errorf("%d wanted beside a static one, %d refused: %v", len(wanted), len(refused), refused[:1])
	}
}
