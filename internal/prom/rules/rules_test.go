package rules

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kvtuner/kvtuner/internal/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

func at(n int) time.Time { return start.Add(time.Duration(n) * 30 * time.Second) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func server(t *testing.T) *prom.Server {
	t.Helper()
	s, err := prom.Open(prom.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

const slow = `
groups:
- name: a
  rules:
  - record: pool:waiting:sum
    expr: sum by(pool) (waiting)
- name: b
  rules:
  - alert: Waiting
    expr: pool:waiting:sum > 10
    for: 1m
    labels: {severity: warning}
    annotations: {summary: "{{ $value }} wait in {{ $labels.pool }}"}
`

func TestRecordAndAlert(t *testing.T) {
	s := server(t)
	r, err := Load(s, write(t, slow))
	must(t, err)
	reg := prometheus.NewRegistry()
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting"})
	reg.MustRegister(waiting)

	var states []string
	for i, v := range []float64{5, 20, 30, 40, 3} {
		waiting.Set(v)
		must(t, s.Scrape(at(i), map[string]string{"pool": "p"}, reg))
		must(t, r.Eval(at(i)))
		state := "none"
		for _, a := range r.Alerts() {
			state = a.State
		}
		states = append(states, state)
		if i == 3 {
			want := []Alert{{
				Name: "Waiting", State: "firing", Value: 40, ActiveAt: at(1),
				Labels:      map[string]string{"alertname": "Waiting", "pool": "p", "severity": "warning"},
				Annotations: map[string]string{"summary": "40 wait in p"},
			}}
			if d := cmp.Diff(want, r.Alerts()); d != "" {
				t.Errorf("alerts (-want +got):\n%s", d)
			}
		}
	}
	if d := cmp.Diff([]string{"none", "pending", "pending", "firing", "none"}, states); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}

	c, err := api.NewClient(api.Config{Address: "http://embedded", RoundTripper: s.RoundTripper()})
	must(t, err)
	for _, q := range []struct {
		expr string
		n    int
		want string
	}{
		{`pool:waiting:sum`, 2, `pool:waiting:sum{pool="p"} => 30 @[4070908860]`},
		{`ALERTS`, 3, `ALERTS{alertname="Waiting", alertstate="firing", pool="p", severity="warning"} => 1 @[4070908890]`},
		{`ALERTS`, 4, ``},
	} {
		v, _, _, err := v1.NewAPI(c).Query(context.Background(), q.expr, at(q.n))
		must(t, err)
		if v.String() != q.want {
			t.Errorf("%s: got %s, want %s", q.expr, v, q.want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	s := server(t)
	for name, c := range map[string]struct{ text, has string }{
		"unknown field": {"groups:\n- name: a\n  rulez: []\n", "rulez"},
		"bad PromQL":    {"groups:\n- name: a\n  rules:\n  - {record: x, expr: 'sum('}\n", "parse"},
		"bad template":  {"groups:\n- name: a\n  rules:\n  - {alert: x, expr: '1', labels: {y: '{{'}}\n", "y"},
	} {
		if _, err := Load(s, write(t, c.text)); err == nil || !strings.Contains(err.Error(), c.has) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := Load(s, "absent.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: error is %v", err)
	}
}

func TestEvalReports(t *testing.T) {
	s := server(t)
	r, err := Load(s, write(t, `
groups:
- name: a
  rules:
  - {record: bad, expr: 'label_replace(vector(1), "x", "a", "", "") * on() group_left() (label_replace(vector(1), "x", "b", "", "") or vector(1))'}
  - {record: good, expr: '2'}
`))
	must(t, err)
	if err := r.Eval(at(0)); err == nil || !strings.Contains(err.Error(), "rule bad of group a") || strings.Contains(err.Error(), "good") {
		t.Errorf("error is %v", err)
	}
	if err := r.Eval(at(0)); !errors.Is(err, prom.ErrTime) {
		t.Errorf("same time again: error is %v", err)
	}
	if err := r.Eval(at(0).Add(365 * 24 * time.Hour)); !errors.Is(err, prom.ErrTime) {
		t.Errorf("a year ahead: error is %v", err)
	}
}
