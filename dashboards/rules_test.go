package dashboards

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/internal/prom/rules"
)

const runbooks = "../docs/runbooks.md"

// unitTests are rules_test.yaml, in promtool's form.
type unitTests struct {
	Rules    []string       `yaml:"rule_files"`
	Interval model.Duration `yaml:"evaluation_interval"`
	Tests    []unitTest     `yaml:"tests"`
}

type unitTest struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Series   []inputSeries  `yaml:"input_series"`
	Alerts   []alertTest    `yaml:"alert_rule_test"`
	Exprs    []exprTest     `yaml:"promql_expr_test"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type alertTest struct {
	Name string         `yaml:"alertname"`
	At   model.Duration `yaml:"eval_time"`
	Want []wantedAlert  `yaml:"exp_alerts"`
}

type wantedAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

type exprTest struct {
	Expr string         `yaml:"expr"`
	At   model.Duration `yaml:"eval_time"`
	Want []wantedSample `yaml:"exp_samples"`
}

type wantedSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

func readUnitTests(t *testing.T) unitTests {
	t.Helper()
	f, err := os.Open("rules_test.yaml")
	must(t, f, err)
	defer f.Close()
	var tests unitTests
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&tests); err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestRules(t *testing.T) {
	tests := readUnitTests(t)
	for _, u := range tests.Tests {
		t.Run(u.Name, func(t *testing.T) {
			if u.Interval != tests.Interval {
				t.Fatalf("interval %s is not the evaluation interval %s", u.Interval, tests.Interval)
			}
			newBench(t, tests.Rules, u).run()
		})
	}
}

var begin = time.Unix(0, 0).UTC()

// bench plays one unit test on an embedded Prometheus.
type bench struct {
	t      *testing.T
	test   unitTest
	server *prom.Server
	rules  *rules.Rules
	api    v1.API
	input  []played
}

// played is an input series.
type played struct {
	labels labels.Labels
	values []parser.SequenceValue
}

func newBench(t *testing.T, files []string, u unitTest) *bench {
	s, err := prom.Open(prom.Options{})
	must(t, s, err)
	t.Cleanup(func() { s.Close() })
	r, err := rules.Load(s, files...)
	must(t, r, err)
	c, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: s.RoundTripper()})
	must(t, c, err)
	b := &bench{t: t, test: u, server: s, rules: r, api: v1.NewAPI(c)}
	for _, in := range u.Series {
		l, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in.Series + " " + in.Values)
		must(t, l, err)
		b.input = append(b.input, played{l, values})
	}
	return b
}

// run lets time pass up to the last question, as promtool does.
func (b *bench) run() {
	end := time.Duration(0)
	for _, a := range b.test.Alerts {
		end = max(end, time.Duration(a.At))
	}
	for _, e := range b.test.Exprs {
		end = max(end, time.Duration(e.At))
	}
	for n := 0; ; n++ {
		since := time.Duration(n) * time.Duration(b.test.Interval)
		if since > end {
			return
		}
		b.scrape(n)
		if err := b.rules.Eval(begin.Add(since)); err != nil {
			b.t.Fatal(err)
		}
		b.ask(since)
	}
}

// scrape records a step of every series. Namespaces are scraped apart, because a
// target has to have a label and this one is there.
func (b *bench) scrape(n int) {
	spaces := map[string][]played{}
	for _, in := range b.input {
		space := in.labels.Get("namespace")
		spaces[space] = append(spaces[space], in)
	}
	for _, space := range slices.Sorted(maps.Keys(spaces)) {
		at := begin.Add(time.Duration(n) * time.Duration(b.test.Interval))
		if err := b.server.Scrape(at, map[string]string{"namespace": space}, step{n, spaces[space]}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// step exposes the n-th value of series.
type step struct {
	n      int
	series []played
}

// Gather implements prometheus.Gatherer. A series that ended is not there.
func (s step) Gather() ([]*dto.MetricFamily, error) {
	families := map[string]*dto.MetricFamily{}
	for _, in := range s.series {
		if s.n >= len(in.values) || value.IsStaleNaN(in.values[s.n].Value) {
			continue
		}
		if in.values[s.n].Omitted {
			return nil, fmt.Errorf("%s: end a series with stale, not with _", in.labels)
		}
		name := in.labels.Get(model.MetricNameLabel)
		if families[name] == nil {
			families[name] = &dto.MetricFamily{Name: &name, Type: dto.MetricType_UNTYPED.Enum()}
		}
		families[name].Metric = append(families[name].Metric, sample(in.labels, in.values[s.n].Value))
	}
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) }), nil
}

func sample(l labels.Labels, v float64) *dto.Metric {
	m := &dto.Metric{Untyped: &dto.Untyped{Value: &v}}
	l.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel && l.Name != "namespace" { // the target has it
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
		}
	})
	return m
}

func (b *bench) ask(since time.Duration) {
	for _, a := range b.test.Alerts {
		if time.Duration(a.At) == since {
			b.checkAlert(a)
		}
	}
	for _, e := range b.test.Exprs {
		if time.Duration(e.At) == since {
			b.checkExpr(e)
		}
	}
}

func (b *bench) checkAlert(a alertTest) {
	var got []wantedAlert
	for _, active := range b.rules.Alerts() {
		if active.Name == a.Name && active.State == "firing" {
			delete(active.Labels, "alertname")
			got = append(got, wantedAlert{active.Labels, active.Annotations})
		}
	}
	if diff := cmp.Diff(a.Want, got, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("%s at %s (-want +got):\n%s", a.Name, a.At, diff)
	}
}

func (b *bench) checkExpr(e exprTest) {
	v, _, _, err := b.api.Query(context.Background(), e.Expr, begin.Add(time.Duration(e.At)))
	must(b.t, v, err)
	want, got := map[string]float64{}, map[string]float64{}
	for _, s := range e.Want {
		m, err := parser.NewParser(parser.Options{}).ParseMetric(s.Labels)
		want[must(b.t, m, err).String()] = s.Value
	}
	for _, s := range v.(model.Vector) {
		m, err := parser.NewParser(parser.Options{}).ParseMetric(s.Metric.String())
		got[must(b.t, m, err).String()] = float64(s.Value)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		b.t.Errorf("%s at %s (-want +got):\n%s", e.Expr, e.At, diff)
	}
}

// ruleFile is rules.yaml as far as these tests look.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Record      string            `yaml:"record"`
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func readRules(t *testing.T) ruleFile {
	t.Helper()
	text, err := os.ReadFile("rules.yaml")
	must(t, text, err)
	var f ruleFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// Every alert is shown to fire and to be quiet, and has a section in the
// runbooks; no section is about an alert that is gone.
func TestAlertsAreTestedAndExplained(t *testing.T) {
	fires := map[string]bool{}
	quiet := map[string]bool{}
	for _, u := range readUnitTests(t).Tests {
		for _, a := range u.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Want) > 0
			quiet[a.Name] = quiet[a.Name] || len(a.Want) == 0
		}
	}
	text, err := os.ReadFile(runbooks)
	must(t, text, err)
	var sections, alerts []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			sections = append(sections, name)
		}
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			alerts = append(alerts, r.Alert)
			if !fires[r.Alert] || !quiet[r.Alert] {
				t.Errorf("%s: rules_test.yaml must show it firing and quiet", r.Alert)
			}
			if want := "docs/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("%s: runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
		}
	}
	if diff := cmp.Diff(alerts, sections); diff != "" {
		t.Errorf("sections of %s (-alert +section):\n%s", runbooks, diff)
	}
}

// The simulated pool is healthy: no alert is even pending.
func nobodyIsAlerted(t *testing.T, r recording) {
	loaded, err := rules.Load(r.server, "rules.yaml")
	must(t, loaded, err)
	if err := loaded.Eval(r.until); err != nil {
		t.Error(err)
	}
	for _, a := range loaded.Alerts() {
		t.Errorf("%s is %s with %v: %v", a.Name, a.State, a.Value, a.Labels)
	}
}

// Metrics that rules name exist in a recorded run, labels included, so a
// renamed one is noticed.
func rulesReadWhatIsExposed(t *testing.T, r recording) {
	for _, g := range readRules(t).Groups {
		for _, rule := range g.Rules {
			e, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
			must(t, e, err)
			for _, selector := range parser.ExtractSelectors(e) {
				r.checkSelector(t, rule.Record+rule.Alert, selector)
			}
		}
	}
}

func (r recording) checkSelector(t *testing.T, rule string, selector []*labels.Matcher) {
	name := ""
	for _, m := range selector {
		if m.Name == model.MetricNameLabel {
			name = m.Value
		}
	}
	if strings.Contains(name, ":") { // recorded by another rule
		return
	}
	for _, m := range selector {
		if m.Name != model.MetricNameLabel && len(r.overTime(t, fmt.Sprintf("%s{%s!=\"\"}", name, m.Name))) == 0 {
			t.Errorf("%s: %s has no label %s", rule, name, m.Name)
		}
	}
	if len(r.overTime(t, name)) == 0 {
		t.Errorf("%s: there is no %s", rule, name)
	}
}
