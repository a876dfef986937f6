package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"google.golang.org/protobuf/proto"

	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

const (
	scrapes = 80
	every   = 15 * time.Second
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// world is what Prometheus has scraped, a line a series in promtool's notation:
// of two engines, two replicas of the Endpoint Picker, kube-state-metrics and a
// tuner, all of them well.
type world struct {
	lines    []string
	settings tuner.Settings
	document *store.Document
	// checkpoint of the tuner; nil is none.
	checkpoint []byte
	interval   time.Duration
	now        time.Time
	writable   map[string]error
	// prometheus is put in front of the real one, if not nil.
	prometheus func(Prometheus) Prometheus
}

func healthy() *world {
	w := &world{interval: every, now: noon, settings: tuner.DefaultSettings(), document: document(3, "1024+8")}
	w.settings.Name, w.settings.Mode, w.settings.Selector, w.settings.Endpoints = "p", tuner.Enforce, `namespace="llm"`, 2
	for _, pod := range []string{"vllm-a", "vllm-b"} {
		w.add(strings.NewReplacer("POD", fmt.Sprintf(`namespace="llm",pod=%q,model_name="qwen"`, pod)).Replace(`
vllm:e2e_request_latency_seconds_sum{POD} 0+40x80
vllm:e2e_request_latency_seconds_count{POD} 0+10x80
vllm:time_to_first_token_seconds_sum{POD} 0+5x80
vllm:time_to_first_token_seconds_count{POD} 0+10x80
vllm:time_to_first_token_seconds_bucket{POD,le="5.0"} 0+10x80
vllm:num_requests_running{POD} 4x80
vllm:num_requests_waiting{POD} 1x80
vllm:generation_tokens_total{POD} 0+1000x80
vllm:prompt_tokens_total{POD} 0+9000x80
vllm:prompt_tokens_by_source_total{POD,source="external_kv_transfer"} 0+900x80
vllm:request_success_total{POD,finished_reason="stop"} 0+10x80
vllm:request_success_total{POD,finished_reason="error"} 0x80
vllm:kv_offload_load_time_total{POD} 0+1x80
kube_pod_container_info{namespace="llm",pod="` + pod + `",image="docker.io/vllm/vllm-openai:v0.31.2"} 1x80`))
	}
	for _, pod := range []string{"epp-x", "epp-y"} {
		w.add(strings.NewReplacer("POD", fmt.Sprintf(`namespace="llm",pod=%q,pool="p"`, pod)).Replace(`
selective_kv_revision{POD} 3x80
selective_kv_parameter{POD,arm="baseline",name="minExternalReusableTokens"} 1024x80
selective_kv_parameter{POD,arm="baseline",name="maxWaitingRequests"} 8x80
selective_kv_parameter{POD,arm="baseline",name="loadPolicy"} 0x80
selective_kv_source{POD,source="store"} 1x80
selective_kv_source{POD,source="config"} 0x80
selective_kv_decisions_total{POD,action="load",reason="reusable"} 0+7x80
selective_kv_decisions_total{POD,action="load",reason="no_evidence"} 0x80
selective_kv_decisions_total{POD,action="load",reason="probe_below_minimum"} 0+1x80
selective_kv_decisions_total{POD,action="recompute",reason="below_minimum"} 0+2x80
selective_kv_clamped{POD,arm="baseline"} 0x80
selective_kv_documents_refused_total{POD,reason="invalid"} 0x80
selective_kv_endpoints{POD} 2x80
selective_kv_endpoint_sample_age_seconds{POD,endpoint="vllm-a"} 0.1x80
selective_kv_external_reusable_tokens_bucket{POD,le="0.0"} 0+2x80
selective_kv_cost_started_total{POD,action="recompute",reusable="1024"} 0+2x80
selective_kv_cost_started_total{POD,action="load",reusable="1024"} 0+8x80
selective_kv_cost_reusable_tokens_total{POD,action="recompute",reusable="1024"} 0+3000x80
selective_kv_cost_finished_total{POD,action="recompute",reusable="1024",computed="2048"} 0+2x80
selective_kv_cost_finished_total{POD,action="recompute",reusable="1024",computed="unknown"} 0x80
selective_kv_cost_computed_tokens_total{POD,action="recompute",reusable="1024",computed="2048"} 0+4000x80`))
	}
	w.add(`kvtuner_ready{namespace="ops",pod="kvtuner-0",pool="p"} 1x80
kvtuner_decisions_total{namespace="ops",pod="kvtuner-0",pool="p",kind="drift"} 0x80`)
	return w
}

// static makes it a pool whose plugin has not seen a document, for there is none.
func (w *world) static(mode tuner.Mode) {
	w.settings.Mode, w.document = mode, nil
	w.set("1x80", `source="config"`)
	w.set("0x80", `source="store"`)
	w.set("0x80", "selective_kv_revision")
}

func document(revision int64, params string) *store.Document {
	p, err := store.ParseParams(params)
	if err != nil {
		panic(err)
	}
	return &store.Document{APIVersion: store.APIVersion, Pool: "p", Revision: revision, UpdatedAt: noon.Add(-time.Hour), Baseline: p}
}

func (w *world) add(lines string) {
	w.lines = append(w.lines, strings.Split(strings.TrimSpace(lines), "\n")...)
}

// drop the series whose text contains all of the parts.
func (w *world) drop(parts ...string) {
	w.lines = slices.DeleteFunc(w.lines, func(line string) bool { return holds(line, parts) })
}

func holds(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// set the values of the series whose text contains all of the parts.
func (w *world) set(values string, parts ...string) {
	for i, line := range w.lines {
		if holds(line, parts) {
			w.lines[i] = line[:strings.LastIndex(line, "}")+2] + values
		}
	}
}

func (w *world) replace(old, by string) {
	for i, line := range w.lines {
		w.lines[i] = strings.ReplaceAll(line, old, by)
	}
}

// serve gives the world's series to a Prometheus.
func (w *world) serve(t *testing.T) Prometheus {
	t.Helper()
	s, err := prom.Open(prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var all []played
	for _, line := range w.lines {
		l, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, played{l, values})
	}
	for n := range scrapes {
		at := noon.Add(-time.Second - time.Duration(scrapes-1-n)*w.interval)
		if err := s.Scrape(at, map[string]string{"cluster": "c"}, step{n, all}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: s.RoundTripper()})
	if err != nil {
		t.Fatal(err)
	}
	return promv1.NewAPI(c)
}

type played struct {
	labels labels.Labels
	values []parser.SequenceValue
}

// step exposes the n-th values.
type step struct {
	n      int
	series []played
}

// Gather implements prometheus.Gatherer.
func (s step) Gather() ([]*dto.MetricFamily, error) {
	families := map[string]*dto.MetricFamily{}
	for _, in := range s.series {
		if s.n >= len(in.values) || in.values[s.n].Omitted {
			continue
		}
		name := in.labels.Get(model.MetricNameLabel)
		if families[name] == nil {
			families[name] = &dto.MetricFamily{Name: &name, Type: dto.MetricType_UNTYPED.Enum()}
		}
		m := &dto.Metric{Untyped: &dto.Untyped{Value: proto.Float64(in.values[s.n].Value)}}
		in.labels.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel {
				m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
			}
		})
		families[name].Metric = append(families[name].Metric, m)
	}
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) }), nil
}

// documents of the world.
type documents struct{ w *world }

func (d documents) Load(context.Context) (*store.Document, error) {
	if d.w.document == nil {
		return nil, store.ErrNotFound
	}
	return d.w.document, nil
}

func (d documents) LoadCheckpoint(context.Context) ([]byte, error) {
	if d.w.checkpoint == nil {
		return nil, store.ErrNotFound
	}
	return d.w.checkpoint, nil
}

func (w *world) look(t *testing.T) Report {
	t.Helper()
	server := w.serve(t)
	if w.prometheus != nil {
		server = w.prometheus(server)
	}
	r, err := Run(t.Context(), Options{
		Settings: w.settings, Prometheus: server, QueryTimeout: time.Minute, Documents: documents{w},
		Writable: func() map[string]error { return w.writable },
		Now:      func() time.Time { return w.now }, At: noon,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// broken answers nothing, or with a warning.
type broken struct {
	Prometheus
	err      error
	warnings promv1.Warnings
}

func (b broken) Query(ctx context.Context, q string, at time.Time, o ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	if b.err != nil {
		return nil, nil, nil, b.err
	}
	v, w, i, err := b.Prometheus.Query(ctx, q, at, o...)
	if strings.Contains(q, "vllm:") {
		w = append(w, b.warnings...)
	}
	return v, w, i, err
}

var errTest = errors.New("dial tcp: connection refused")
