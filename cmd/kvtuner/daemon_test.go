package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// running is a daemon in this process, paced by hand. Pools are told apart by
// the interval they asked ticks for.
type running struct {
	t       *testing.T
	address string
	pace    map[time.Duration]chan time.Time
	stop    func() error
}

// start runs the daemon of a configuration file until the test ends.
func start(t *testing.T, config string) *running {
	t.Helper()
	c, err := tuner.LoadConfig(writeFile(t, "kvtuner.yaml", config))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, pace: map[time.Duration]chan time.Time{}}
	d, err := newDaemon(c, slog.New(slog.DiscardHandler), func(_ context.Context, interval time.Duration) <-chan time.Time {
		return r.pace[interval]
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range d.pools.loops {
		r.pace[pool.Interval()] = make(chan time.Time)
	}
	r.pace[checkEvery] = make(chan time.Time)
	r.address = "http://" + d.listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	r.stop = func() error { cancel(); return <-done }
	return r
}

// step has the pool step at each time, and returns when it is done with them.
func (r *running) step(interval time.Duration, at ...time.Time) {
	for _, now := range at {
		r.pace[interval] <- now
	}
	// The loop takes the next tick when it is done with the last. A step at the
	// same time again finds an empty window.
	r.pace[interval] <- at[len(at)-1]
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	response, err := http.Get(r.address + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (r *running) expect(path string, status int, says ...string) {
	r.t.Helper()
	got, body := r.get(path)
	if got != status {
		r.t.Errorf("%s: status %d, want %d: %s", path, got, status, body)
	}
	for _, s := range says {
		if !strings.Contains(body, s) {
			r.t.Errorf("%s does not say %q: %s", path, s, body)
		}
	}
}

// checkLeaks fails the test if goroutines outlive it; idle connections of the
// test's own client are closed first.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, before)
	})
}

// engine is a vLLM replica that completes ten requests between scrapes.
type engine struct {
	registry *prometheus.Registry
	work     func()
}

// newPlugin is an Endpoint Picker that has a revision of the pool's document in
// force.
// newPlugin shows the series of a pool's plugin: its revision, and 2048+4 in force.
func newPlugin(pool string, revision float64) *prometheus.Registry {
	r := prometheus.NewRegistry()
	labels := prometheus.Labels{"pool": pool}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "selective_kv_revision", Help: "Revision in force.", ConstLabels: labels})
	g.Set(revision)
	inForce := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "selective_kv_parameter", Help: "Parameters in force.", ConstLabels: labels}, []string{"arm", "name"})
	inForce.WithLabelValues("baseline", store.NameTokens).Set(2048)
	inForce.WithLabelValues("baseline", store.NameWaiting).Set(4)
	r.MustRegister(g, inForce)
	return r
}

func newEngine() *engine {
	e2e := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:e2e_request_latency_seconds", Help: "End to end.", Buckets: []float64{1, 10}})
	ttft := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:time_to_first_token_seconds", Help: "TTFT.", Buckets: []float64{1, 5}})
	generated := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:generation_tokens_total", Help: "Generated."})
	prompt := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:prompt_tokens_total", Help: "Prompt."})
	running := prometheus.NewGauge(prometheus.GaugeOpts{Name: "vllm:num_requests_running", Help: "Running."})
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "vllm:num_requests_waiting", Help: "Waiting."})
	e := &engine{registry: prometheus.NewRegistry(), work: func() {
		for range 10 {
			e2e.Observe(4)
			ttft.Observe(0.5)
			generated.Add(128)
			prompt.Add(4096)
		}
		running.Set(6)
		waiting.Set(2)
	}}
	e.registry.MustRegister(e2e, ttft, generated, prompt, running, waiting)
	return e
}

const sample = 15 * time.Second

func TestDaemonTunesFromPrometheus(t *testing.T) {
	checkLeaks(t)
	p, err := prom.Open(prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	url, err := p.Listen("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := start(t, fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: %q}
history: {path: %q}
pools: [{name: qwen, mode: enforce, store: {file: %q}}]
`, url, filepath.Join(dir, "history.db"), filepath.Join(dir, "qwen.json")))
	r.expect("/healthz", 200, "ok")
	r.expect("/readyz", 503, "pool qwen: waiting for the first step")

	e, plugin, now := newEngine(), newPlugin("qwen", 1), fixtureTime
	for range 6 {
		e.work()
		for pod, registry := range map[string]*prometheus.Registry{"vllm-0": e.registry, "epp-0": plugin} {
			if err := p.Scrape(now, map[string]string{"pod": pod}, registry); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(sample)
	}
	r.step(sample, now.Add(-2*sample), now.Add(-sample))

	r.step(checkEvery, now)
	r.expect("/api/v1/status", 200, `"preflight": [`, `"check": "waiting-signal"`, `"level": "error"`)

	r.expect("/readyz", 200, "ok\n")
	r.expect("/api/v1/status", 200, `"ready": true`, `"lastState": "ok"`, `"revision": 1`)
	r.expect("/api/v1/decisions?pool=qwen", 200, `"kind": "adopt"`, "no document existed")
	r.expect("/metrics", 200, `kvtuner_samples_total{pool="qwen",state="ok"} `, "go_goroutines ", "process_start_time_seconds ", "go_build_info")
	if _, err := os.Stat(filepath.Join(dir, "qwen.json")); err != nil {
		t.Errorf("in mode enforce, the first document is written: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	h, err := store.OpenHistory(store.HistoryOptions{Path: filepath.Join(dir, "history.db")})
	if err != nil {
		t.Fatalf("the history is released: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(r.address + "/healthz"); err == nil {
		t.Error("the address is not released")
	}
}

func TestDaemonSaysWhatIsBroken(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	late := filepath.Join(dir, "late")
	r := start(t, fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: "http://%s"}
history: {path: %q}
pools:
- {name: unmounted, mode: enforce, scrapeInterval: 20s, store: {file: %q}}
- {name: blind, scrapeInterval: 15s, store: {file: %q}}
`, unusedAddress(t), filepath.Join(dir, "history.db"), filepath.Join(late, "params.json"), filepath.Join(dir, "blind.json")))
	r.step(20*time.Second, fixtureTime)
	r.step(15*time.Second, fixtureTime)
	r.expect("/healthz", 200)
	r.expect("/readyz", 503, "pool unmounted: loading the parameter document", "create the directory "+late,
		"pool blind: data is missing: asking Prometheus: ", "connection refused")

	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	r.step(20*time.Second, fixtureTime.Add(20*time.Second))
	r.expect("/readyz", 503, "pool unmounted: data is missing")
	r.expect("/api/v1/decisions?pool=unmounted", 200, `"kind": "adopt"`)
	if err := r.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// An observer reads beside the tuner that writes: it needs no right to write, leaves
// nothing behind, and sees what the other has in force.
func TestObserverBesideATuner(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	config := func(mode string) string {
		return fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: "http://%s"}
history: {path: %q}
pools: [{name: qwen, mode: %s, initial: 2048+4, store: {file: %q}}]
`, unusedAddress(t), filepath.Join(dir, mode+".db"), mode, filepath.Join(shared, "qwen.json"))
	}
	observer := start(t, config("observe"))
	observer.step(sample, fixtureTime)
	observer.expect("/api/v1/decisions", 200, "no document existed")
	if _, err := os.Stat(shared); err == nil {
		t.Error("the observer made the folder")
	}
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	enforcing := start(t, config("enforce"))
	enforcing.step(sample, fixtureTime)
	written := filesIn(t, shared)
	observer.step(sample, fixtureTime.Add(sample))
	observer.expect("/api/v1/decisions", 200, "someone else wrote revision 1")
	if got := filesIn(t, shared); !slices.Equal(got, written) {
		t.Errorf("the observer left %v, the tuner %v", got, written)
	}
	for _, r := range []*running{observer, enforcing} {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}

// unusedAddress refuses connections: it was free a moment ago.
func unusedAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestSlowPoolDelaysNoOther(t *testing.T) {
	checkLeaks(t)
	stuck := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.FormValue("query"), "swamp") {
			stuck <- struct{}{}
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	r := start(t, fmt.Sprintf(`
listen: 127.0.0.1:0
prometheus: {url: %q, timeout: 5m}
history: {path: %q}
pools:
- {name: slow, selector: 'job="swamp"', scrapeInterval: 20s, store: {file: %q}}
- {name: quick, scrapeInterval: 15s, store: {file: %q}}
`, server.URL, filepath.Join(dir, "history.db"), filepath.Join(dir, "slow.json"), filepath.Join(dir, "quick.json")))
	r.pace[20*time.Second] <- fixtureTime
	<-stuck
	for n := range 5 {
		r.step(15*time.Second, fixtureTime.Add(time.Duration(n)*15*time.Second))
	}
	_, body := r.get("/api/v1/status")
	var s web.StatusResponse
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	if slow, quick := s.Pools[0], s.Pools[1]; !slow.At.IsZero() || quick.At.Before(fixtureTime.Add(time.Minute)) {
		t.Errorf("slow stepped at %v, quick at %v", slow.At, quick.At)
	}
	if err := r.stop(); err != nil {
		t.Errorf("stopping in the middle of a step: %v", err)
	}
}

func TestDaemonReleasesWhatItTookWhenItCannotStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	history := filepath.Join(t.TempDir(), "history.db")
	c := tuner.Config{
		Listen:     l.Addr().String(),
		Prometheus: tuner.PrometheusConfig{URL: "http://127.0.0.1:1", Timeout: time.Second},
		History:    tuner.HistoryConfig{Path: history, MaxPerPool: 1, MaxAge: time.Hour},
	}
	if _, err := newDaemon(c, slog.New(slog.DiscardHandler), tickAtOnce); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want the address to be in use", err)
	}
	h, err := store.OpenHistory(store.HistoryOptions{Path: history})
	if err != nil {
		t.Fatalf("the history is still held: %v", err)
	}
	h.Close()
}

// Commands reach a pool over TLS from who has a token, outlive a restart, and end
// up in the history.
func TestDaemonObeysOverTLS(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	cert, key := selfSigned(t)
	tokens := writeFile(t, "operators", "alice 0123456789abcdef\n")
	mine := writeFile(t, "token", "0123456789abcdef\n")
	config := fmt.Sprintf(`
listen: 127.0.0.1:0
web: {tokenFile: %q, tls: {certFile: %q, keyFile: %q}}
prometheus: {url: "http://127.0.0.1:1"}
history: {path: %q}
pools: [{name: qwen, mode: enforce, store: {file: %q}}]
`, tokens, cert, key, filepath.Join(dir, "history.db"), filepath.Join(dir, "qwen.json"))
	kvtuner := func(r *running, args ...string) (int, string) {
		var out strings.Builder
		code := execute(t.Context(), append(args, "--address", strings.Replace(r.address, "http:", "https:", 1), "--ca", cert), &out, &out)
		return code, out.String()
	}
	r := start(t, config)
	r.step(sample, fixtureTime)
	if code, out := kvtuner(r, "pause", "--reason", "drill", "--by", "", "--token-file", mine); code != 0 || !strings.Contains(out, `paused by alice until someone resumes it ("drill")`) {
		t.Errorf("pause: %d, %s", code, out)
	}
	if code, out := kvtuner(r, "resume"); code != exitRefused {
		t.Errorf("without a token: %d, %s", code, out)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = start(t, config)
	r.step(sample, fixtureTime.Add(time.Hour))
	if _, out := kvtuner(r, "status"); !strings.Contains(out, "paused by alice") && !strings.Contains(out, "data is missing") {
		t.Errorf("after a restart: %s", out)
	}
	if code, out := kvtuner(r, "history", "--kind", "pause", "--output", "json"); code != 0 || !strings.Contains(out, `"actor": "alice"`) {
		t.Errorf("history: %d, %s", code, out)
	}
	if code, out := kvtuner(r, "resume", "--token-file", mine, "--by", ""); code != 0 || !strings.Contains(out, "alice resumed tuning, which was paused by alice") {
		t.Errorf("resume: %d, %s", code, out)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

// selfSigned writes the certificate and key that httptest serves 127.0.0.1 with.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	pair := s.TLS.Certificates[0]
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile = writeFile(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	return certFile, writeFile(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

func TestDaemonRefusesOperatorsItCannotRead(t *testing.T) {
	c := tuner.Config{
		Listen:     "127.0.0.1:0",
		Web:        tuner.WebConfig{TokenFile: writeFile(t, "operators", "alice short\n")},
		Prometheus: tuner.PrometheusConfig{URL: "http://127.0.0.1:1", Timeout: time.Second},
		History:    tuner.HistoryConfig{Path: filepath.Join(t.TempDir(), "history.db"), MaxPerPool: 1, MaxAge: time.Hour},
	}
	if _, err := newDaemon(c, slog.New(slog.DiscardHandler), tickAtOnce); err == nil || !strings.Contains(err.Error(), "web.tokenFile: ") {
		t.Errorf("got %v", err)
	}
}

func TestStandbyObeysNobody(t *testing.T) {
	_, err := led{nil, &atomic.Bool{}}.Obey(t.Context(), fixtureTime, tuner.Command{Verb: tuner.Pause, Actor: "alice"})
	if !errors.Is(err, tuner.ErrRefused) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("got %v", err)
	}
}
