//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var prometheus = fmt.Sprint("127.0.0.1:", ports(1))

const daemon = `listen: 127.0.0.1:0
prometheus: {url: "http://%s"}
history: {path: %q}
pools:
- {name: %s, mode: enforce, scrapeInterval: 1s, endpoints: %d, selector: 'namespace="llm"', store: {file: %q}}
`

// testTuner closes the loop: Prometheus scrapes engines and replicas, the daemon
// reads it and writes the file, and both replicas obey. The static parameters
// let the hot prompt load, the daemon's initial ones do not.
func (f *fleet) testTuner(t *testing.T) {
	f.startPrometheus(t)
	root := filepath.Join("..", "..", "..")
	binary, dir := build(t, root, "./cmd/kvtuner"), t.TempDir()
	path := filepath.Join(dir, "kvtuner.yaml")
	text := fmt.Sprintf(daemon, prometheus, filepath.Join(dir, "history.db"), poolName, modelServers, f.path)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tuner := launch(t, "kvtuner", func() *exec.Cmd { return exec.Command(binary, "run", "--config", path) })
	for _, e := range f.epps {
		e.shows(1, 30*time.Second, "selective_kv_revision")
		if a := f.send(e, completions, completion(hot)); !limited(t, a) {
			t.Errorf("%s does not obey the daemon: arrived as %s", e.name, a.body)
		}
	}
	tuner.kill()
	for _, e := range f.epps {
		if a := f.send(e, completions, completion(hot)); !limited(t, a) {
			t.Errorf("%s forgot the parameters with the daemon: arrived as %s", e.name, a.body)
		}
	}
	tuner.start(t)
	eventually(t, "the daemon takes over its own document", 30*time.Second, func() bool {
		return query(`count(selective_kv_revision{pool="`+poolName+`"} == 1)`) == fmt.Sprint(replicas)
	})
}

// startPrometheus scrapes what a PodMonitor would.
func (f *fleet) startPrometheus(t *testing.T) {
	args := []string{"-listen", prometheus, "-interval", "500ms"}
	for _, e := range f.engines {
		args = append(args, fmt.Sprintf("%s=http://%s:%d/metrics", e.name, e.ip, enginePort))
	}
	for i, e := range f.epps {
		args = append(args, fmt.Sprintf("epp-%d=http://%s/metrics", i, e.metrics()))
	}
	binary := build(t, filepath.Join("..", "..", ".."), "./internal/scraper")
	launch(t, "Prometheus", func() *exec.Cmd { return exec.Command(binary, args...) })
	eventually(t, "Prometheus scrapes all targets", 10*time.Second, func() bool {
		return query("sum(up)") == fmt.Sprint(modelServers+replicas)
	})
}

// query is the only value of an instant query, empty if there is none.
func query(expression string) string {
	response, err := client.Get("http://" + prometheus + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if json.NewDecoder(response.Body).Decode(&answer) != nil || len(answer.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
