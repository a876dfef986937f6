package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const pools = 100

// listed pools are in the configuration, the others are discovered.
const listed = pools / 2

// The sick pools: Prometheus never answers for the one, the other's document is broken.
const (
	unanswered = 0
	broken     = 1
)

// TestManyPools runs one process with 100 pools, half of them discovered, two of the
// others sick: 98 take their steps.
func TestManyPools(t *testing.T) {
	ns := namespace(t)
	for n := range pools {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: poolName(n)}}
		if n >= listed {
			cm.Labels = map[string]string{"kvtuner.io/pool": poolName(n)}
		}
		if n == broken {
			cm.Data = map[string]string{"parameters.json": "oops"}
		}
		if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var queries atomic.Int64
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		queries.Add(1)
		if strings.Contains(string(body)+r.URL.RawQuery, poolName(unanswered)) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
	}))
	defer prometheus.Close()
	address := runPools(t, ns, prometheus.URL)
	eventually(t, "98 pools to be taken over", func(context.Context) bool { return len(stepping(t, address)) == pools-2 })

	const measured = 30 * time.Second
	cpu, asked, before := metric(t, address, "process_cpu_seconds_total"), queries.Load(), apiRequests(t)
	first := stepping(t, address)
	time.Sleep(measured) // a rate needs time
	last := stepping(t, address)
	for name, at := range first {
		if !last[name].After(at) {
			t.Errorf("pool %s has taken no step for %v", name, measured)
		}
	}
	t.Logf("%d pools: %.0f MiB resident, %.1f%% of a core, %.1f requests/s to Prometheus; to the API server/s: %s", pools,
		metric(t, address, "process_resident_memory_bytes")/(1<<20), 100*(metric(t, address, "process_cpu_seconds_total")-cpu)/measured.Seconds(),
		float64(queries.Load()-asked)/measured.Seconds(), rates(before, apiRequests(t), measured))
}

func rates(before, after map[string]float64, d time.Duration) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n > 0 {
			all = append(all, fmt.Sprintf("%.1f %s", n/d.Seconds(), what))
		}
	}
	return strings.Join(all, ", ")
}

func poolName(n int) string { return fmt.Sprintf("pool-%03d", n) }

// runPools starts the process and returns its address.
func runPools(t *testing.T, ns, prometheus string) string {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	fmt.Fprintf(&text, "listen: 127.0.0.1:0\nprometheus: {url: %q}\nhistory: {path: %q}\nkubernetes: {kubeconfig: %q, discover: {configMaps: kvtuner.io/pool, selector: 'pool=\"{pool}\"'}}\ndefaults: {mode: enforce}\npools:\n",
		prometheus, filepath.Join(dir, "history.db"), plane.kubeconfig(t, ns, plane.token))
	for n := range listed {
		fmt.Fprintf(&text, "- {name: %[1]s, selector: 'pool=%[1]q', store: {configMap: {name: %[1]s}}}\n", poolName(n))
	}
	config := filepath.Join(dir, "kvtuner.yaml")
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary("kvtuner"), "run", "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if m := started.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() { // so that it never waits for a reader
				}
			}()
			return "http://" + m[1]
		}
	}
	t.Fatal("the process ended before it told its address")
	return ""
}

// stepping are the healthy pools that have a document of theirs in force, and when each
// took its last step.
func stepping(t *testing.T, address string) map[string]time.Time {
	t.Helper()
	var status struct {
		Pools []struct {
			Pool     string    `json:"pool"`
			At       time.Time `json:"at"`
			Revision int64     `json:"revision"`
		} `json:"pools"`
	}
	if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, address+"/api/v1/status")), &status); err != nil {
		t.Fatal(err)
	}
	found := map[string]time.Time{}
	for _, p := range status.Pools {
		healthy := p.Pool != poolName(unanswered) && p.Pool != poolName(broken)
		if healthy && p.Revision > 0 && !p.At.IsZero() {
			found[p.Pool] = p.At
		}
	}
	return found
}

func fetch(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// metric is the sum over the series of a name.
func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	return sum(t, fetch(t, http.DefaultClient, address+"/metrics"), name)
}

func sum(t *testing.T, exposition, name string) float64 {
	t.Helper()
	total := 0.0
	for line := range strings.Lines(exposition) {
		if rest, found := strings.CutPrefix(line, name); found && (rest[0] == ' ' || rest[0] == '{') {
			fields := strings.Fields(line)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			total += value
		}
	}
	return total
}

// apiRequests so far, by verb and resource.
func apiRequests(t *testing.T) map[string]float64 {
	t.Helper()
	raw, err := admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	labels := regexp.MustCompile(`^apiserver_request_total\{.*resource="(configmaps|events)".*verb="([A-Z]+)"`)
	requests := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		if m := labels.FindStringSubmatch(line); m != nil {
			requests[m[2]+" "+m[1]] += sum(t, line, "apiserver_request_total")
		}
	}
	return requests
}
