//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// epp is one replica of the Endpoint Picker, a process of its own.
type epp struct {
	*envoy
	*process
	t    *testing.T
	port int // of ext_proc; health and metrics follow
}

// startEPP starts a replica on port and the two after it. env is added to the
// environment, args to what all replicas are told.
func startEPP(t *testing.T, binary string, port int, env []string, args ...string) *epp {
	t.Helper()
	e := &epp{envoy: newEnvoy(t, port), t: t, port: port}
	e.process = launch(t, e.name, func() *exec.Cmd {
		command := exec.Command(binary, append([]string{
			"--pool-name", poolName, "--pool-namespace", namespace,
			"--grpc-port", fmt.Sprint(port), "--grpc-health-port", fmt.Sprint(port + 1), "--metrics-port", fmt.Sprint(port + 2),
			"--metrics-endpoint-auth=false", "--refresh-prometheus-metrics-interval=100ms", "--secure-serving=false", "--tracing=false", "--enable-pprof=false", "--v=0"},
			args...)...)
		command.Env = append(os.Environ(), env...)
		return command
	})
	return e
}

func (e *epp) metrics() string { return fmt.Sprintf("127.0.0.1:%d", e.port+2) }

// scrape is a target as Prometheus sees it.
type scrape map[string]*dto.MetricFamily

func (e *epp) scrape() (scrape, error) { return fetch(e.metrics()) }

// client of what has to answer at once.
var client = &http.Client{Timeout: 5 * time.Second}

func fetch(address string) (scrape, error) {
	response, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("scrape %s: %s %s", address, response.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// sum of the series of a family that have all the labels, given as name=value;
// histograms count.
func (s scrape) sum(name string, labels ...string) (total float64) {
	for _, m := range s[name].GetMetric() {
		if has(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

func has(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		name, value, _ := strings.Cut(want, "=")
		found := false
		for _, pair := range m.GetLabel() {
			found = found || pair.GetName() == name && pair.GetValue() == value
		}
		if !found {
			return false
		}
	}
	return true
}

// eventually polls until the condition holds, and says how long that took.
func eventually(t *testing.T, what string, limit time.Duration, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// shows waits until a sum over the replica's metrics is as wanted.
func (e *epp) shows(want float64, limit time.Duration, name string, labels ...string) time.Duration {
	e.t.Helper()
	var got float64
	defer func() {
		if e.t.Failed() {
			e.t.Logf("%s: %s%v is %g", e.name, name, labels, got)
		}
	}()
	return eventually(e.t, fmt.Sprintf("%s: %s%v = %g", e.name, name, labels, want), limit, func() bool {
		s, err := e.scrape()
		got = s.sum(name, labels...)
		return err == nil && got == want
	})
}

// forgot checks that the replica has series of some endpoints, but none of this
// one.
func (e *epp) forgot(endpoint string) {
	e.t.Helper()
	s, err := e.scrape()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, name := range []string{"selective_kv_endpoint_waiting_ewma", "selective_kv_endpoint_gate_closed"} {
		if len(s[name].GetMetric()) == 0 {
			e.t.Errorf("%s has no series of %s", e.name, name)
		}
		for _, m := range s[name].GetMetric() {
			if has(m, []string{"endpoint=" + endpoint}) {
				e.t.Errorf("%s still has %s of %s", e.name, name, endpoint)
			}
		}
	}
}
