package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// A set-up that is well has nothing amiss, and everything was looked at.
func TestHealthySetUp(t *testing.T) {
	r := healthy().look(t)
	for _, f := range r.Findings {
		if f.Level != tuner.Fine {
			t.Errorf("%s: %s: %s (%s: %s)", f.Check, f.Level, f.Found, f.Setting, f.Fix)
		}
	}
	if len(r.Findings) != len(checks) || r.Version == "" || r.Worst() != tuner.Fine {
		t.Errorf("%d findings of %d checks, version %q, worst %s", len(r.Findings), len(checks), r.Version, r.Worst())
	}
}

// Before anything was published, static thresholds are as they should be, and the
// check says what will happen to them.
func TestSetUpBeforeAnythingWasPublished(t *testing.T) {
	for mode, says := range map[tuner.Mode]string{
		tuner.Observe: "static, 1024+8: mode observe writes no document",
		tuner.Propose: "static, 1024+8: nothing has been published yet. A daemon in mode propose writes the first document, with these, when it starts",
		tuner.Enforce: "static, 1024+8: nothing has been published yet. A daemon in mode enforce writes the first document, with these, when it starts",
	} {
		w := healthy()
		w.static(mode)
		w.drop("probe_below") // and most requests have nothing to restore
		w.set("0+1x80", `reason="reusable"`)
		w.set("0+9x80", "below_minimum")
		w.set("0+9x80", "reusable_tokens_bucket")
		r := w.look(t)
		for _, f := range r.Amiss() {
			t.Errorf("%s: %s: %s: %s (%s: %s)", mode, f.Check, f.Level, f.Found, f.Setting, f.Fix)
		}
		if found := of(r, "plugin-source"); len(found) != 1 || !strings.Contains(found[0].Found, says) {
			t.Errorf("%s: says %+v, want %q", mode, found, says)
		}
		if found := of(r, "revision"); len(found) != 1 || found[0].Level != tuner.Fine || !strings.Contains(found[0].Found, "nothing has been published yet") {
			t.Errorf("%s: says %+v", mode, found)
		}
	}
}

// A document that was just written is not one that does not arrive.
func TestDocumentOnItsWay(t *testing.T) {
	for name, mutate := range map[string]func(*world){
		"the first": func(w *world) {
			w.static(tuner.Enforce)
			w.document = document(1, "1024+8")
		},
		"another":                  func(w *world) { w.document = document(4, "1024+8") },
		"seen by one replica only": func(w *world) { w.document = document(4, "1024+8"); w.set("4x80", "selective_kv_revision", "epp-x") },
	} {
		w := healthy()
		mutate(w)
		w.document.UpdatedAt = noon.Add(-20 * time.Second)
		r := w.look(t)
		for _, f := range r.Amiss() {
			t.Errorf("%s: %s: %s: %s", name, f.Check, f.Level, f.Found)
		}
		if found := of(r, "revision"); len(found) != 1 || found[0].Level != tuner.Skipped || !strings.Contains(found[0].Found, "was written 20s ago") {
			t.Errorf("%s: says %+v", name, found)
		}
		w.document.UpdatedAt = noon.Add(-2 * arrival)
		if r := w.look(t); r.Worst() != tuner.Failure {
			t.Errorf("%s, for long: %+v", name, of(r, "revision"))
		}
	}
}

// Neither a standby nor an observer beside the tuner is a second writer, and an
// observer needs no right to write.
func TestTunersThatWriteNothing(t *testing.T) {
	w := healthy()
	w.add(`kvtuner_ready{namespace="ops",pod="standby",pool="p"} 0x80
kvtuner_mode{namespace="ops",pod="standby",pool="p",mode="enforce"} 1x80
kvtuner_ready{namespace="ops",pod="observer",pool="p"} 1x80
kvtuner_mode{namespace="ops",pod="observer",pool="p",mode="observe"} 1x80
kvtuner_decisions_total{namespace="ops",pod="observer",pool="p",kind="drift"} 0+1x80`)
	w.settings.Mode, w.writable = tuner.Observe, map[string]error{"store": errTest}
	for _, f := range w.look(t).Amiss() {
		t.Errorf("%s: %s: %s", f.Check, f.Level, f.Found)
	}
	w.drop("kvtuner_ready", "kvtuner-0")
	if found := of(w.look(t), "owner"); len(found) != 1 || found[0].Level != tuner.Skipped {
		t.Errorf("with no tuner that writes: %+v", found)
	}
}

// Each broken set-up, by the check that finds it.
func TestBrokenSetUps(t *testing.T) {
	for _, tc := range []struct {
		name    string
		mutate  func(*world)
		check   string
		level   tuner.Level
		setting string
		says    string
	}{
		{"Prometheus is down", func(w *world) { w.prometheus = failing(errTest) }, "prometheus", tuner.Failure, "prometheus.url", "connection refused"},
		{"unauthorised", func(w *world) { w.prometheus = failing(&promv1.Error{Type: "client_error", Msg: "client error: 401"}) }, "prometheus", tuner.Failure, "prometheus.bearerTokenFile", "401"},
		{"forbidden", func(w *world) { w.prometheus = failing(&promv1.Error{Type: "client_error", Msg: "client error: 403"}) }, "prometheus", tuner.Failure, "prometheus.bearerTokenFile", "403"},
		{"not the API", func(w *world) { w.prometheus = failing(&promv1.Error{Type: "client_error", Msg: "client error: 404"}) }, "prometheus", tuner.Failure, "prometheus.url", "404"},
		{"no tenant", func(w *world) { w.prometheus = failing(fmt.Errorf("no org id")) }, "prometheus", tuner.Failure, "prometheus.headers", "no org id"},
		{"unknown authority", func(w *world) {
			w.prometheus = failing(fmt.Errorf("x509: certificate signed by unknown authority"))
		}, "prometheus", tuner.Failure, "prometheus.tls.caFile", "x509"},
		{"too slow", func(w *world) { w.prometheus = failing(context.DeadlineExceeded) }, "prometheus", tuner.Failure, "prometheus.timeout", "deadline"},
		{"partial answers", func(w *world) {
			w.prometheus = func(p Prometheus) Prometheus {
				return broken{Prometheus: p, warnings: promv1.Warnings{"store gateway is down"}}
			}
		}, "partial", tuner.Failure, "prometheus.url", "store gateway is down"},
		{"clocks differ", func(w *world) { w.now = noon.Add(-10 * time.Second) }, "clock", tuner.Warning, "", "10s off"},
		{"clocks differ by more than a sample", func(w *world) { w.now = noon.Add(time.Minute) }, "clock", tuner.Failure, "", "-1m0s off"},
		{"wrong selector", func(w *world) { w.settings.Selector = `namespace="prod"` }, "engines", tuner.Failure, "selector", `selector "namespace=\"prod\"" matches no engine`},
		{"wrong preset", func(w *world) { w.replace("vllm:", "kserve_vllm:") }, "engines", tuner.Failure, "metrics.preset", `under those of "kserve"`},
		{"no engine is scraped", func(w *world) { w.drop("vllm:") }, "engines", tuner.Failure, "prometheus.url", "no engine's series"},
		{"engines without the label", func(w *world) { w.settings.EndpointLabel = "node" }, "endpoint-label", tuner.Failure, "endpointLabel", "no label node"},
		{"scraped by two jobs", func(w *world) {
			for _, line := range slices.Clone(w.lines) {
				if strings.HasPrefix(line, "vllm:") {
					w.add(strings.Replace(line, "namespace=", `job="second",namespace=`, 1))
				}
			}
		}, "scraped-twice", tuner.Failure, "selector", "each request counts twice"},
		{"an engine is missing", func(w *world) { w.drop("vllm:", "vllm-b") }, "endpoints", tuner.Failure, "endpoints", "1 engine(s) are seen, endpoints says 2"},
		{"an engine is not scraped", func(w *world) { w.drop("vllm:", "vllm-b"); w.settings.Endpoints = 0 }, "endpoints", tuner.Failure, "selector", "routes to 2 endpoints, 1 engine(s)"},
		{"a series is missing", func(w *world) { w.drop("time_to_first_token_seconds_count", "vllm-b") }, "signals", tuner.Failure, "metrics.names", "ttft of vllm-b"},
		{"scraped too rarely", func(w *world) { w.interval = 30 * time.Second }, "scrape-interval", tuner.Failure, "scrapeInterval", "each 30s, scrapeInterval is 15s"},
		{"scraped more often", func(w *world) { w.settings.ScrapeInterval = 30 * time.Second }, "scrape-interval", tuner.Warning, "scrapeInterval", "each 15s, scrapeInterval is 30s"},
		{"an engine crashes", func(w *world) {
			w.set("0+10x9 0+10x9 0+10x9 0+10x9 0+10x9 0+10x9 0+10x9 0+10x9", "e2e_request_latency_seconds_count", "vllm-b")
		}, "restarts", tuner.Warning, "", "vllm-b were reset"},
		{"two models", func(w *world) {
			w.add(`vllm:num_requests_running{namespace="llm",pod="vllm-c",model_name="llama"} 1x80`)
		}, "models", tuner.Warning, "selector", "llama, qwen"},
		{"engines too old", func(w *world) { w.replace("v0.31.2", "v0.29.1") }, "engine-version", tuner.Failure, "", "vLLM is 0.29.1 of vllm-a"},
		{"nothing is restored", func(w *world) { w.drop("kv_offload"); w.drop("by_source") }, "offload", tuner.Warning, "", "nothing was restored"},
		{"a weight on what is not there", func(w *world) { w.drop("kv_offload"); w.drop("by_source"); w.settings.Objective.Restore = 1 }, "offload", tuner.Warning, "objective.restore", "weighs what is not there"},
		{"no bucket at the SLO", func(w *world) { w.replace(`le="5.0"`, `le="6.0"`) }, "slo", tuner.Failure, "guard.ttft", "no bucket at guard.ttft, 5s"},
		{"an SLO the incumbent misses", func(w *world) { w.set("0+8x80", "seconds_bucket", "vllm") }, "slo", tuner.Warning, "guard.ttft", "80.0% of requests"},
		{"no SLO", func(w *world) { w.settings.Guard.Within = 0 }, "slo", tuner.Warning, "guard.within", "no SLO"},
		{"requests fail", func(w *world) { w.set("0+1x80", `finished_reason="error"`) }, "errors", tuner.Warning, "guard.maxErrorShare", "9.1% of requests fail"},
		{"too few requests for a trial", func(w *world) { w.settings.Trial.MinRequests = 10000 }, "requests", tuner.Warning, "trial.block", "trials end undecided"},
		{"the plugin has another name for the pool", func(w *world) { w.settings.Name = "q" }, "plugin", tuner.Failure, "pluginSelector", "there are pools p"},
		{"an Endpoint Picker without the plugin", func(w *world) {
			w.drop("selective_kv_")
			w.add(`inference_pool_ready_pods{pod="epp-x"} 2x80`)
		}, "plugin", tuner.Failure, "", "does not run selective-kv-policy"},
		{"no Endpoint Picker", func(w *world) { w.drop("selective_kv_") }, "plugin", tuner.Failure, "", "no Endpoint Picker is scraped"},
		{"replicas without a label", func(w *world) { w.settings.ReplicaLabel = "node" }, "plugin", tuner.Failure, "replicaLabel", "no label node"},
		{"static configuration", func(w *world) { w.set("1x80", `source="config"`); w.set("0x80", `source="store"`) }, "plugin-source", tuner.Failure, "", "static configuration"},
		{"other static thresholds than the tuner's, watched", func(w *world) {
			w.static(tuner.Observe)
			w.settings.Initial.MinExternalReusableTokens = 2048
		}, "plugin-source", tuner.Warning, "initial", "configuration has 1024+8, the tuner takes it for 2048+8"},
		{"other static thresholds than the tuner's, about to be replaced", func(w *world) {
			w.static(tuner.Enforce)
			w.set("Inf+0x80", `arm="baseline",name="minExternalReusableTokens"`)
		}, "plugin-source", tuner.Warning, "initial", "has inf+8, the first document of mode enforce will have 1024+8"},
		{"a plugin without thresholds", func(w *world) {
			w.static(tuner.Enforce)
			w.drop("selective_kv_parameter")
		}, "plugin-source", tuner.Warning, "", "its loadPolicy has none"},
		{"the document was removed", func(w *world) { w.document = nil }, "revision", tuner.Warning, "store", "all replicas show revision 3, and there is no document here"},
		{"replicas differ", func(w *world) { w.set("2x80", "selective_kv_revision", "epp-y") }, "revision", tuner.Failure, "store", "revisions 2 to 3"},
		{"another document", func(w *world) { w.set("9x80", "selective_kv_revision") }, "revision", tuner.Failure, "store", "the document here has only 3"},
		{"the document does not arrive", func(w *world) { w.document.Revision = 5 }, "revision", tuner.Failure, "store", "does not arrive"},
		{"documents are refused", func(w *world) { w.set("0x60 1x19", "documents_refused") }, "documents", tuner.Failure, "store", "refused in the last hour: invalid"},
		{"an incumbent out of bounds", func(w *world) { w.settings.Bounds.MinExternalReusableTokens.Min = 2048 }, "bounds", tuner.Warning, "bounds", "starts from 2048+8"},
		{"bounds of the plugin", func(w *world) { w.set("1x80", "selective_kv_clamped") }, "bounds", tuner.Failure, "bounds", "its own bounds"},
		{"no evidence", func(w *world) { w.set("0+30x80", `reason="no_evidence"`) }, "evidence", tuner.Failure, "", "75% of the requests are decided without evidence"},
		{"no tiers", func(w *world) { w.set("0+10x80", "reusable_tokens_bucket") }, "evidence", tuner.Warning, "", "no request has anything to restore"},
		{"no probes", func(w *world) { w.drop("probe_below"); w.set("0+40x80", "below_minimum") }, "probes", tuner.Warning, "", "none let through as a probe"},
		{"computed tokens are not known", func(w *world) { w.set("0+9x80", `computed="unknown"`) }, "feedback", tuner.Warning, "", "82% of the requests"},
		{"no first token is seen", func(w *world) { w.drop("cost_finished") }, "feedback", tuner.Failure, "", "no first token was seen"},
		{"the gate is blind", func(w *world) { w.set("0x80", "selective_kv_endpoints") }, "waiting-signal", tuner.Failure, "", "follows no endpoint's queue"},
		{"the gate's samples are old", func(w *world) { w.set("300x80", "sample_age") }, "waiting-signal", tuner.Warning, "", "last seen 300 s ago"},
		{"a replica is not scraped", func(w *world) { w.drop("selective_kv_", "epp-y") }, "coverage", tuner.Failure, "pluginSelector", "a replica is not scraped"},
		{"the plugin serves others, too", func(w *world) { w.set("0+30x80", `reason="reusable"`) }, "coverage", tuner.Warning, "selector", "also decides for others"},
		{"engines ignore the field", func(w *world) { w.set("0+500x80", "cost_computed") }, "effect", tuner.Failure, "", "told to recompute 1500 tokens had 250 computed"},
		{"the store cannot be written", func(w *world) { w.writable = map[string]error{"store": errTest} }, "store", tuner.Failure, "store", "refused"},
		{"the history cannot be written", func(w *world) { w.writable = map[string]error{"history.path": errTest} }, "history", tuner.Failure, "history.path", "refused"},
		{"a checkpoint that is none", func(w *world) { w.checkpoint = []byte("{") }, "checkpoint", tuner.Failure, "store", "cannot be read"},
		{"a document from a backup", func(w *world) {
			w.checkpoint = []byte(`{"revision":7,"incumbent":{"minExternalReusableTokens":1024,"maxWaitingRequests":8}}`)
		}, "checkpoint", tuner.Warning, "store", "restored from an older copy"},
		{"someone set the parameters", func(w *world) {
			w.checkpoint = []byte(`{"revision":3,"incumbent":{"minExternalReusableTokens":2048,"maxWaitingRequests":8}}`)
		}, "checkpoint", tuner.Warning, "store", "incumbent was 2048+8, the document has 1024+8"},
		{"two tuners", func(w *world) { w.add(`kvtuner_ready{namespace="ops",pod="kvtuner-1",pool="p"} 1x80`) }, "owner", tuner.Failure, "pools", "2 tuners run"},
		{"another writer", func(w *world) { w.set("0+1x80", "drift") }, "owner", tuner.Warning, "pools", "someone else has written"},
		{"a schedule that never opens", func(w *world) {
			w.settings.Schedule.Windows = []tuner.Window{{Start: "0 0 31 2 *", Duration: time.Hour}}
		}, "schedule", tuner.Failure, "schedule.windows", "never opens"},
		{"a schedule too short", func(w *world) {
			w.settings.Schedule.Windows = []tuner.Window{{Start: "0 0 * * *", Duration: 2 * time.Minute}}
		}, "schedule", tuner.Warning, "schedule.windows", "no window lasts 5m0s"},
		{"the sample is unknown", func(w *world) { w.set("4x78", "num_requests_running", "vllm-b") }, "sample", tuner.Failure, "", "unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := healthy()
			tc.mutate(w)
			r := w.look(t)
			for _, f := range r.Findings {
				if f.Check == tc.check && f.Level == tc.level && f.Setting == tc.setting && strings.Contains(f.Found, tc.says) {
					if f.Fix == "" {
						t.Errorf("%q has no remedy", f.Found)
					}
					return
				}
			}
			t.Errorf("check %s does not say %q as %s of %q:\n%v", tc.check, tc.says, tc.level, tc.setting, of(r, tc.check))
		})
	}
}

func of(r Report, check string) []tuner.Finding {
	var out []tuner.Finding
	for _, f := range r.Findings {
		if f.Check == check || f.Level == tuner.Failure {
			out = append(out, f)
		}
	}
	return out
}

func failing(err error) func(Prometheus) Prometheus {
	return func(p Prometheus) Prometheus { return broken{Prometheus: p, err: err} }
}

// What cannot be asked is not fine, and only its cause is an error.
func TestUnreachablePrometheusIsOneError(t *testing.T) {
	w := healthy()
	w.prometheus = failing(errTest)
	failures := 0
	for _, f := range w.look(t).Findings {
		switch {
		case f.Level == tuner.Failure:
			failures++
		case f.Level == tuner.Fine && slices.Contains([]string{"engines", "plugin", "effect", "sample", "owner", "partial"}, f.Check):
			t.Errorf("%s is fine although Prometheus is down: %s", f.Check, f.Found)
		}
	}
	if failures != 1 {
		t.Errorf("%d errors, want the one", failures)
	}
}

func TestDetect(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate   func(*world)
		preset   string
		also     string
		label    string
		selector string
		pool     string
		plugin   bool
		initial  string
	}{
		"vllm":   {func(*world) {}, "vllm", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"kserve": {func(w *world) { w.replace("vllm:", "kserve_vllm:") }, "kserve", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"both": {func(w *world) {
			for _, line := range slices.Clone(w.lines) {
				if strings.HasPrefix(line, "vllm:") {
					w.add("kserve_" + line)
				}
			}
		}, "vllm", "kserve", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"otel": {func(w *world) {
			w.replace("vllm:", "vllm_")
			w.replace(`namespace="llm",pod="vllm`, `namespace="otel",pod="collector",exported_namespace="llm",exported_pod="vllm`)
		}, "otel", "", "exported_pod", `exported_namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"gie":     {func(w *world) { w.add(`inference_pool_ready_pods{pod="epp-x"} 2x80`) }, "gie", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"llm-d":   {func(w *world) { w.add(`llm_d_epp_ready_endpoints{pod="epp-x"} 2x80`) }, "llm-d", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"lmcache": {func(w *world) { w.add(`lmcache:num_hit_tokens_total{pod="vllm-a"} 2x80`) }, "lmcache", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"sglang": {func(w *world) { w.replace("vllm:num_requests_running", "sglang:num_running_reqs") }, "sglang", "", "pod",
			`namespace="llm",model_name="qwen"`, "p", true, "1024+8"},
		"no plugin": {func(w *world) { w.drop("selective_kv_"); w.replace(`"qwen"`, `"Org/Qwen3 32B"`) }, "vllm", "", "pod",
			`namespace="llm",model_name="Org/Qwen3 32B"`, "Qwen3-32B", false, "none"},
		"never":         {func(w *world) { w.set("Inf+0x80", `name="minExternalReusableTokens"`) }, "vllm", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "inf+8"},
		"adaptive":      {func(w *world) { w.set("1x80", `name="loadPolicy"`) }, "vllm", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "1024+8+adaptive"},
		"no thresholds": {func(w *world) { w.drop("selective_kv_parameter") }, "vllm", "", "pod", `namespace="llm",model_name="qwen"`, "p", true, "none"},
		"replicas differ": {func(w *world) { w.set("16x80", `name="maxWaitingRequests"`, "epp-y") }, "vllm", "", "pod",
			`namespace="llm",model_name="qwen"`, "p", true, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := healthy()
			tc.mutate(w)
			d, err := Detect(t.Context(), Options{Prometheus: w.serve(t), QueryTimeout: time.Minute, Documents: documents{w}, Now: func() time.Time { return noon }, At: noon})
			if err != nil {
				t.Fatal(err)
			}
			if d.Preset != tc.preset || strings.Join(d.Also, ",") != tc.also || d.EndpointLabel != tc.label || d.Scrape != every || len(d.Pools) != 1 {
				t.Fatalf("found %+v", d)
			}
			initial := "none"
			if d.Pools[0].Initial != nil {
				initial = d.Pools[0].Initial.String()
			}
			want := Detected{Name: tc.pool, Selector: tc.selector, Endpoints: 2, Plugin: tc.plugin, Initial: d.Pools[0].Initial}
			if d.Pools[0] != want || initial != tc.initial {
				t.Errorf("found %+v, initial %s", d, initial)
			}
		})
	}
	w := healthy()
	w.drop("vllm:")
	if _, err := Detect(t.Context(), Options{Prometheus: w.serve(t), QueryTimeout: time.Minute, Now: func() time.Time { return noon }, At: noon}); err == nil {
		t.Error("engines were found where there are none")
	}
}

// Run wants everything it needs, and says so.
func TestRunRefusesHalfTheOptions(t *testing.T) {
	if _, err := Run(t.Context(), Options{}); err == nil {
		t.Error("accepted")
	}
}

var _ Documents = store.NewMemory("p")
