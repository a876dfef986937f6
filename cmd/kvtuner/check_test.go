package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

// serveFleet is a Prometheus with ten minutes of two engines and, of a pool, the
// plugin.
func serveFleet(t *testing.T) (url string) {
	t.Helper()
	p, err := prom.Open(prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	url, err = p.Listen("")
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]*engine{"vllm-0": newEngine(), "vllm-1": newEngine()}
	plugin := newPlugin("qwen", 1)
	for at := time.Now().Add(-10 * time.Minute); at.Before(time.Now()); at = at.Add(sample) {
		targets := map[string]*prometheus.Registry{"epp-0": plugin}
		for pod, e := range engines {
			e.work()
			targets[pod] = e.registry
		}
		for pod, registry := range targets {
			if err := p.Scrape(at, map[string]string{"namespace": "llm", "pod": pod}, registry); err != nil {
				t.Fatal(err)
			}
		}
	}
	return url
}

func checkConfig(t *testing.T, url, extra string) string {
	dir := t.TempDir()
	return writeFile(t, "kvtuner.yaml", fmt.Sprintf(`
prometheus: {url: %q}
history: {path: %q}
pools: [{name: qwen, selector: 'namespace="llm"', store: {file: %q}%s}]
`, url, filepath.Join(dir, "history.db"), filepath.Join(dir, "qwen.json"), extra))
}

func runs(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := execute(t.Context(), args, &out, &errs); code != want {
		t.Errorf("kvtuner %v: exit code %d, want %d: %s%s", args, code, want, &out, &errs)
	}
	return out.String(), errs.String()
}

func TestCheckSaysWhatToDo(t *testing.T) {
	url := serveFleet(t)
	out, errs := runs(t, exitErrors, "check", "--config", checkConfig(t, url, `, scrapeInterval: 1m, trial: {block: 10m}`))
	for _, says := range []string{
		"pool qwen, as of ", "ok    engines         2 engine(s): vllm-0, vllm-1",
		"WARN  scrape-interval engines are scraped each 15s, scrapeInterval is 1m0s",
		"-> scrapeInterval: set scrapeInterval: 15s",
		"FAIL  waiting-signal", "ok    store           there is no document yet",
	} {
		if !strings.Contains(out, says) {
			t.Errorf("does not say %q:\n%s", says, out)
		}
	}
	for line := range strings.Lines(out) {
		if len(line) > widest+40 { // one word may stand out
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	if !strings.Contains(errs, "error(s)") {
		t.Errorf("stderr: %s", errs)
	}
}

// A report fits the terminal; elsewhere it is as wide as can be read.
func TestReportFitsTheTerminal(t *testing.T) {
	f := tuner.Finding{Check: "engines", Level: tuner.Failure, Setting: "selector", Found: strings.Repeat("wörd ", 60), Fix: strings.Repeat("do so ", 40)}
	for columns, want := range map[textWidth]int{80: 80, 50: 50, 100: 100} {
		var out bytes.Buffer
		columns.finding(&out, "  ", f)
		longest := 0
		for line := range strings.Lines(out.String()) {
			longest = max(longest, len([]rune(strings.TrimSuffix(line, "\n"))))
		}
		if longest > want || longest < want-6 {
			t.Errorf("%d columns: the longest line has %d", columns, longest)
		}
	}
	if got := newTextWidth(&bytes.Buffer{}); got != widest {
		t.Errorf("piped: %d columns", got)
	}
}

func TestCheckAsJSON(t *testing.T) {
	out, _ := runs(t, exitErrors, "check", "--format", "json", "--config", checkConfig(t, "http://"+unusedAddress(t), ""))
	var got struct{ Pools []preflight.Report }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Pools) != 1 || got.Pools[0].Worst() != tuner.Failure || got.Pools[0].Findings[0].Setting != "prometheus.url" {
		t.Errorf("got %+v", got)
	}
}

func TestCheckUsage(t *testing.T) {
	config := checkConfig(t, "http://127.0.0.1:1", "")
	for _, args := range [][]string{
		{"check"}, {"check", "--prometheus", "http://x"}, {"check", "--config", config, "--prometheus", "http://x", "--detect"},
		{"check", "--detect", "--prometheus", "x"}, {"check", "--config", config + "x"}, {"check", "--config", config, "--format", "yaml"},
	} {
		runs(t, exitUsage, args...)
	}
	runs(t, exitNotFound, "check", "--config", config, "--pool", "other")
}

// The first document changes nothing, whatever is in force.
func TestDetectProposesWhatIsInForce(t *testing.T) {
	for _, tc := range []struct {
		plugin  bool
		inForce string
		want    string
		says    string
	}{
		{true, "inf+0", "inf+0", "initial: inf+0 # what"},
		{true, "1024+8+adaptive", "1024+8+adaptive", "search: {adaptive: try}"},
		{true, "", "1024+8", "show no thresholds, or not the same ones"},
		{false, "", "1024+8", "No plugin exports series"},
	} {
		pool := preflight.Detected{Name: "p", Plugin: tc.plugin}
		if p, err := store.ParseParams(tc.inForce); err == nil {
			pool.Initial = &p
		}
		var out bytes.Buffer
		writeDetection(&out, preflight.Detection{Preset: "vllm", EndpointLabel: "pod", Pools: []preflight.Detected{pool}}, "http://prometheus:9090", "")
		c, err := tuner.LoadConfig(writeFile(t, "detected.yaml", out.String()))
		if err != nil {
			t.Fatalf("%+v: %v:\n%s", tc, err, &out)
		}
		if got := c.Pools[0].Initial.String(); got != tc.want || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%+v: initial %s:\n%s", tc, got, &out)
		}
	}
}

// What --detect prints is a configuration that is accepted and finds the engines.
func TestDetectWritesAConfiguration(t *testing.T) {
	url := serveFleet(t)
	out, _ := runs(t, 0, "check", "--detect", "--prometheus", url)
	c, err := tuner.LoadConfig(writeFile(t, "detected.yaml", out))
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	p := c.Pools[0]
	if len(c.Pools) != 1 || p.Name != "qwen" || p.Selector != `namespace="llm"` || p.Endpoints != 2 || p.ScrapeInterval != sample || p.Mode != tuner.Observe || p.Initial.String() != "2048+4" {
		t.Errorf("detected %+v", c.Pools)
	}
	if !strings.Contains(out, "    initial: 2048+4 # what the plugin has in force\n") {
		t.Errorf("does not say where initial comes from:\n%s", out)
	}
	asJSON, _ := runs(t, 0, "check", "--detect", "--prometheus", url, "--format", "json")
	if !json.Valid([]byte(asJSON)) || !strings.Contains(asJSON, `"preset": "vllm"`) || !strings.Contains(asJSON, `"minExternalReusableTokens": 2048`) {
		t.Errorf("got %s", asJSON)
	}
	login := "prometheus: {url: '" + url + "', headers: ['X-Scope-OrgID: a']}\n"
	behind, _ := runs(t, 0, "check", "--detect", "--config", writeFile(t, "prometheus.yaml", login))
	if c, err = tuner.LoadConfig(writeFile(t, "both.yaml", login+behind)); err != nil || len(c.Pools) != 1 || len(c.Prometheus.Headers) != 1 {
		t.Errorf("behind the login: %+v, %v:\n%s", c, err, behind)
	}
	runs(t, exitUsage, "check", "--detect", "--config", writeFile(t, "wrong.yaml", "prometheus: {url: '"+url+"', tenant: a}\n"))
	_, errs := runs(t, exitFailure, "check", "--detect", "--prometheus", "http://"+unusedAddress(t))
	if !strings.Contains(errs, "prometheus.url") {
		t.Errorf("of an unreachable server: %s", errs)
	}
}
