package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rules are what the rooms of the project must not know, directly or through
// others.
var rules = map[string][]string{
	"plugin":         {"/tuner", "/store/configmap", "/internal/", "/cmd/", "client_golang/api", "k8s.io/", "sigs.k8s.io/", "prometheus/prometheus"},
	"plugin/adapter": {"opentelemetry.io/otel/sdk", "/tuner", "/store/configmap", "/internal/", "/cmd/", "kvtuner/plugin/gie", "kvtuner/plugin/llmd", "client_golang/api", "k8s.io/", "prometheus/prometheus"},
	"store":          {"/store/configmap", "/tuner", "/plugin", "/internal/", "/cmd/", "client_golang", "k8s.io/", "prometheus/prometheus"},
	"tuner":          {"opentelemetry.io/otel/sdk", "kvtuner/plugin", "/store/configmap", "/internal/", "/cmd/", "k8s.io/"},
	"tuner/web":      {"opentelemetry.io/otel/sdk", "kvtuner/plugin", "/store/configmap", "/internal/", "/cmd/", "k8s.io/"},
	"internal/fleet": {"/tuner", "/store/configmap", "/cmd/", "internal/prom", "internal/lab"},
	"internal/chaos": {"/cmd/", "internal/fleet", "internal/lab", "internal/prom"},
	"internal/prom":  {"kvtuner/plugin", "kvtuner/store", "/tuner", "/cmd/"},

	// The rooms that talk to Kubernetes; cmd/kvtuner and the adapters choose them.
	"store/configmap": {"/tuner", "/plugin", "/internal/", "/cmd/", "prometheus/"},
	"tuner/kube":      {"kvtuner/plugin", "/internal/", "/cmd/"},
}

// The Go toolchain's own vendored or std "internal" packages are not ours.
const module = "github.com/kvtuner/kvtuner/"

func TestRoomsKeepToThemselves(t *testing.T) {
	for room, forbidden := range rules {
		out, err := exec.Command("go", "list", "-deps", module+room).CombinedOutput()
		if err != nil {
			t.Fatalf("go list %s: %v\n%s", room, err, out)
		}
		for _, dep := range strings.Fields(string(out)) {
			if dep == module+room {
				continue
			}
			if i := slices.IndexFunc(forbidden, func(f string) bool { return violates(dep, f) }); i >= 0 {
				t.Errorf("%s depends on %s, which it must not know (%s)", room, dep, forbidden[i])
			}
		}
	}
}

// violates reports whether dep falls under a rule. Rules that start with a
// slash or name the module are about our own packages.
func violates(dep, rule string) bool {
	own := strings.HasPrefix(dep, module)
	if strings.HasPrefix(rule, "/") || strings.HasPrefix(rule, "internal/") {
		return own && strings.Contains("/"+strings.TrimPrefix(dep, module)+"/", strings.TrimSuffix("/"+strings.Trim(rule, "/"), "/")+"/")
	}
	return strings.Contains(dep, rule)
}
