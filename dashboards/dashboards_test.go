package dashboards

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	dashquery "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	simulated "github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
)

var update = flag.Bool("update", false, "write the JSON files anew")

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func all(t *testing.T) []dashboard.Dashboard {
	t.Helper()
	built, err := All()
	return must(t, built, err)
}

func file(d dashboard.Dashboard) string { return *d.Uid + ".json" }

func TestFiles(t *testing.T) {
	for _, d := range all(t) {
		text, err := Encode(d)
		must(t, text, err)
		if *update {
			if err := os.WriteFile(file(d), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		old, err := os.ReadFile(file(d))
		must(t, old, err)
		if diff := cmp.Diff(string(old), string(text)); diff != "" {
			t.Errorf("%s is not what the code builds; run go generate ./dashboards (-file +code):\n%s", file(d), diff)
		}
	}
}

// What is checked in is what Grafana's schema allows.
func TestFilesDecodeStrictly(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, d := range all(t) {
		text, err := os.ReadFile(file(d))
		must(t, text, err)
		var read dashboard.Dashboard
		if problems := say(read.UnmarshalJSONStrict(text)); problems != "" {
			t.Errorf("%s: %s", file(d), problems)
		}
		if problems := say(read.Validate()); problems != "" {
			t.Errorf("%s: %s", file(d), problems)
		}
	}
}

// say is an error's message: the SDK returns an empty list, not nil, for none.
func say(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func panels(d dashboard.Dashboard) []*dashboard.Panel {
	var out []*dashboard.Panel
	for _, p := range d.Panels {
		out = append(out, p.Panel)
	}
	return out
}

func queries(p *dashboard.Panel) []dashquery.Dataquery {
	var out []dashquery.Dataquery
	for _, t := range p.Targets {
		out = append(out, t.(dashquery.Dataquery))
	}
	return out
}

func TestPanelsExplainThemselves(t *testing.T) {
	ids := map[string]bool{}
	for _, d := range all(t) {
		if *d.Refresh != "30s" || !slices.Contains(d.Tags, "kvtuner") || len(d.Links) == 0 {
			t.Errorf("%s lacks refresh, tag or links", *d.Title)
		}
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		if diff := cmp.Diff([]string{"datasource", "namespace", "pool", "model_name"}, names); diff != "" {
			t.Errorf("%s: variables:\n%s", *d.Title, diff)
		}
		right := uint32(0)
		for _, p := range panels(d) {
			name := *d.Title + " / " + *p.Title
			if p.Description == nil || len(*p.Description) < 40 || !strings.HasSuffix(*p.Description, ".") {
				t.Errorf("%s: the description does not say how to read it", name)
			}
			if id := fmt.Sprint(*d.Uid, *p.Id); ids[id] {
				t.Errorf("%s: id %s is taken", name, id)
			} else {
				ids[id] = true
			}
			if p.Type != "state-timeline" && (p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == nil) {
				t.Errorf("%s has no unit", name)
			}
			if p.GridPos.X != right {
				t.Errorf("%s begins at column %d, the panel before it ends at %d", name, p.GridPos.X, right)
			}
			right = (p.GridPos.X + p.GridPos.W) % 24
			for _, q := range queries(p) {
				if q.LegendFormat == nil || *q.LegendFormat == "" {
					t.Errorf("%s: %s has no legend", name, q.Expr)
				}
			}
		}
		if right != 0 {
			t.Errorf("%s: the last row is not full", *d.Title)
		}
	}
}

// variables of Grafana as they are put in for a run of half an hour.
var interpolate = strings.NewReplacer("$namespace", ".+", "$pool", ".+", "$model_name", ".+", "$__rate_interval", "2m", "$__range", "30m")

const length = 30 * time.Minute

// recording answers queries on a tuned run.
type recording struct {
	server *prom.Server
	api    v1.API
	until  time.Time
}

// recorded runs check on the Prometheus of a simulated run and then returns its
// decisions.
func recorded(t *testing.T, check func(recording)) []store.Decision {
	t.Helper()
	scenario, err := simulated.ByName("8k-c32-slow-storage")
	must(t, scenario, err)
	run := lab.Run{
		Phases: []lab.Phase{{Scenario: scenario, Duration: length}}, Seed: 1,
		Policy: lab.Tuned(store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}),
		Recorded: func(s *prom.Server, until time.Time) error {
			c, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: s.RoundTripper()})
			if err != nil {
				return err
			}
			check(recording{server: s, api: v1.NewAPI(c), until: until})
			return nil
		},
	}
	o, err := run.Do(context.Background())
	return must(t, o, err).Decisions
}

func (r recording) overTime(t *testing.T, expr string) model.Matrix {
	t.Helper()
	v, warnings, _, err := r.api.QueryRange(context.Background(), expr, v1.Range{Start: r.until.Add(-length), End: r.until, Step: time.Minute})
	if err != nil || len(warnings) > 0 {
		t.Errorf("%s: %v %v", expr, err, warnings)
		return nil
	}
	return v.(model.Matrix)
}

func (r recording) atEnd(t *testing.T, expr string) model.Vector {
	t.Helper()
	v, warnings, _, err := r.api.Query(context.Background(), expr, r.until)
	if err != nil || len(warnings) > 0 {
		t.Errorf("%s: %v %v", expr, err, warnings)
		return nil
	}
	return v.(model.Vector)
}

// finite counts the values a panel could draw.
func finite(m model.Matrix) (n int) {
	for _, s := range m {
		for _, v := range s.Values {
			if f := float64(v.Value); !math.IsNaN(f) && !math.IsInf(f, 0) {
				n++
			}
		}
	}
	return n
}

func (r recording) has(t *testing.T, q dashquery.Dataquery) bool {
	expr := interpolate.Replace(q.Expr)
	if q.Instant == nil || !*q.Instant {
		return finite(r.overTime(t, expr)) > 0
	}
	for _, s := range r.atEnd(t, expr) {
		if !math.IsNaN(float64(s.Value)) {
			return true
		}
	}
	return false
}

// TestOnARun looks at one recorded run: it takes longer than all other tests here.
func TestOnARun(t *testing.T) {
	var marked map[time.Time]bool
	taken := recorded(t, func(r recording) {
		t.Run("queries return data", func(t *testing.T) { queriesReturnData(t, r) })
		t.Run("nobody is alerted", func(t *testing.T) { nobodyIsAlerted(t, r) })
		t.Run("rules read what is exposed", func(t *testing.T) { rulesReadWhatIsExposed(t, r) })
		marked = r.marks(t, all(t)[0])
	})
	checkMarks(t, marked, taken)
}

// Every query of every panel shows something of a run, and every legend is made
// of labels there are.
func queriesReturnData(t *testing.T, r recording) {
	var wait sync.WaitGroup
	for _, d := range all(t) {
		for _, p := range panels(d) {
			for _, q := range queries(p) {
				wait.Go(func() {
					if !r.has(t, q) {
						t.Errorf("%s / %s: no data from %s", *d.Title, *p.Title, q.Expr)
					}
					r.checkLegend(t, q)
				})
			}
		}
	}
	wait.Wait()
}

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

func (r recording) checkLegend(t *testing.T, q dashquery.Dataquery) {
	series := r.overTime(t, interpolate.Replace(q.Expr))
	for _, name := range placeholder.FindAllStringSubmatch(*q.LegendFormat, -1) {
		for _, s := range series {
			if s.Metric[model.LabelName(name[1])] == "" {
				t.Errorf("%s: a series has no label %s for its legend", q.Expr, name[1])
				break
			}
		}
	}
}

// marks are the minutes in which an annotation begins.
func (r recording) marks(t *testing.T, d dashboard.Dashboard) map[time.Time]bool {
	out := map[time.Time]bool{}
	for _, a := range d.Annotations.List {
		if a.Expr == nil {
			continue
		}
		for _, s := range r.overTime(t, interpolate.Replace(*a.Expr)) {
			for _, v := range s.Values {
				out[v.Timestamp.Time().UTC()] = true
			}
		}
	}
	return out
}

// checkMarks holds annotations against the record: each decision that changes
// what is in force is marked at the first full minute after it was scraped, and
// nothing else is.
func checkMarks(t *testing.T, marked map[time.Time]bool, taken []store.Decision) {
	t.Helper()
	want := map[time.Time]bool{}
	for _, d := range taken {
		switch d.Kind {
		case store.KindMove, store.KindRecover, store.KindDrift, store.KindRollback, store.KindAbort, store.KindShed, store.KindHold, store.KindResume:
			want[d.Time.Add(15*time.Second+time.Minute-1).Truncate(time.Minute)] = true
		}
	}
	if len(want) == 0 {
		t.Error("the run has no decision to mark")
	}
	if diff := cmp.Diff(want, marked); diff != "" {
		t.Errorf("minutes marked (-decided +marked):\n%s", diff)
	}
}

// Queries are read by the parser Prometheus itself uses, annotations' and the
// variables' selectors included.
func TestQueriesParse(t *testing.T) {
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: false})
	for _, d := range all(t) {
		exprs := []string{}
		for _, panel := range panels(d) {
			for _, q := range queries(panel) {
				exprs = append(exprs, q.Expr)
			}
		}
		for _, a := range d.Annotations.List {
			exprs = append(exprs, *a.Expr)
		}
		for _, e := range exprs {
			if _, err := p.ParseExpr(interpolate.Replace(e)); err != nil {
				t.Errorf("%s: %s: %v", *d.Title, e, err)
			}
			if regexp.MustCompile(`ENGINE|PLUGIN|TUNER`).MatchString(e) {
				t.Errorf("%s: %s was not expanded", *d.Title, e)
			}
		}
	}
}
