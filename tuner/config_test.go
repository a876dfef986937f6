package tuner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

const minimal = `
prometheus: {url: "http://prometheus:9090"}
pools:
- name: Qwen2.5-32B
  selector: 'namespace="llm"'
  store: {file: params.json}
`

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kvtuner.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path)
}

func TestLoadConfigDefaults(t *testing.T) {
	c, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultSettings()
	want.Name, want.Selector = "Qwen2.5-32B", `namespace="llm"`
	got := c.Pools[0].Settings
	if got.Schedule.Zone != want.Schedule.Zone || got.Trial != want.Trial || got.Guard != want.Guard || got.Search != want.Search ||
		got.Objective != want.Objective || got.Bounds != want.Bounds || got.Initial != want.Initial || got.Mode != Observe || got.Name != want.Name {
		t.Errorf("settings %+v\nwant %+v", got, want)
	}
}

func TestLoadConfigOverrides(t *testing.T) {
	t.Setenv("KVTUNER_PROMETHEUS_URL", "https://elsewhere")
	t.Setenv("KVTUNER_DEFAULTS_MODE", "enforce")
	c, err := load(t, `
prometheus: {url: "http://prometheus:9090", headers: ["X-Scope-OrgID: a"]}
defaults:
  scrapeInterval: 5s
  bounds: {minExternalReusableTokens: {min: 64, max: inf}, maxWaitingRequests: {min: 1, max: 32}}
pools:
- {name: a, store: {file: a.json}, initial: 2048+4}
- {name: b, mode: observe, scrapeInterval: 30s, initial: {minExternalReusableTokens: inf, maxWaitingRequests: 2}, store: {file: b.json}}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Pools[0], c.Pools[1]
	if c.Prometheus.URL != "https://elsewhere" || a.Mode != Enforce || b.Mode != Observe {
		t.Errorf("url %s, modes %s and %s", c.Prometheus.URL, a.Mode, b.Mode)
	}
	if a.ScrapeInterval != 5*time.Second || b.ScrapeInterval != 30*time.Second {
		t.Errorf("scrape intervals %v and %v", a.ScrapeInterval, b.ScrapeInterval)
	}
	if a.Initial != (store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 4}) || b.Initial.MinExternalReusableTokens != store.Never {
		t.Errorf("initial %s and %s", a.Initial, b.Initial)
	}
	if a.Bounds.MaxWaitingRequests.Max != 32 || b.Bounds.MinExternalReusableTokens.Min != 64 {
		t.Errorf("bounds %+v and %+v", a.Bounds, b.Bounds)
	}
}

// Every setting can be overridden, whether the file names it or not.
func TestLoadConfigEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"TRIAL_ALPHA": "0.1", "TRIAL_MAXBLOCKS": "7", "TRIAL_BLOCK": "200s", "GUARD_WITHIN": "0.8", "INITIAL": "2048+4",
		"BOUNDS_MINEXTERNALREUSABLETOKENS_MIN": "64", "BOUNDS_MINEXTERNALREUSABLETOKENS_MAX": "inf", "SELECTOR": `pod="x"`,
	} {
		t.Setenv("KVTUNER_DEFAULTS_"+name, value)
	}
	c, err := load(t, strings.Replace(minimal, "  selector: 'namespace=\"llm\"'\n", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Pools[0].Settings
	if s.Trial.Alpha != 0.1 || s.Trial.MaxBlocks != 7 || s.Trial.Block != 200*time.Second || s.Guard.Within != 0.8 ||
		s.Initial.String() != "2048+4" || s.Bounds.MinExternalReusableTokens.Min != 64 || s.Selector != `pod="x"` {
		t.Errorf("settings %+v", s)
	}
	for name, value := range map[string]string{"TRIAL_BLOCK": "garbage", "GUARD_WITHIN": "90", "INITIAL": "fast", "TRIAL_MAXBLOCKS": "many"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KVTUNER_DEFAULTS_"+name, value)
			if _, err := load(t, minimal); err == nil || !strings.Contains(err.Error(), value) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		})
	}
}

func TestLoadConfigErrors(t *testing.T) {
	pool := func(extra string) string { return strings.TrimSpace(minimal) + "\n  " + extra + "\n" }
	prometheus := func(extra string) string { return strings.Replace(minimal, "9090\"", "9090\", "+extra, 1) }
	for _, tc := range []struct{ name, text, want string }{
		{"not YAML", "a: [", "reading configuration"},
		{"unknown key", "colour: red\n" + minimal, "colour"},
		{"unknown pool key", pool("speed: 3"), "speed"},
		{"unknown nested key", pool("trial: {blok: 60s}"), "blok"},
		{"no pools", `prometheus: {url: "http://x"}`, "pools: is empty"},
		{"no url", "pools: [{name: a, store: {file: a}}]", "prometheus.url"},
		{"file URL", strings.Replace(minimal, "http://prometheus:9090", "file:///etc/passwd", 1), "prometheus.url"},
		{"spans to a file", "tracing: {endpoint: /var/log/spans}\n" + minimal, "tracing.endpoint"},
		{"a login in the endpoint", "tracing: {endpoint: \"http://me:hunter2@otel:4318\"}\n" + minimal, "tracing.headerFiles"},
		{"nothing sampled", "tracing: {sampleRatio: 0}\n" + minimal, "tracing.sampleRatio: 0 is not allowed"},
		{"more than all sampled", "tracing: {sampleRatio: 50}\n" + minimal, "tracing.sampleRatio: 50 is not allowed"},
		{"NaN sampled", "tracing: {sampleRatio: .nan}\n" + minimal, "tracing.sampleRatio: NaN is not allowed"},
		{"a header without a file", "tracing: {headerFiles: [Authorization]}\n" + minimal, "tracing.headerFiles[0]"},
		{"no name", strings.Replace(minimal, "Qwen2.5-32B", `""`, 1), "name: is empty"},
		{"a name no document can have", strings.Replace(minimal, "Qwen2.5-32B", "my pool", 1), "my pool"},
		{"a weight that drowns all others", pool("objective: {e2e: 1e308}"), "objective.e2e"},
		{"block too short for its samples", pool("scrapeInterval: 1s\n  trial: {block: 30s, washout: 27s}"), "trial.block"},
		{"two of a name", minimal + "- {name: Qwen2.5-32B, store: {file: other.json}}\n", "is there twice"},
		{"two of a file", minimal + "- {name: b, store: {file: params.json}}\n", "belongs to another pool"},
		{"no store", "prometheus: {url: \"http://x\"}\npools: [{name: a}]", "store: is empty"},
		{"mode", pool("mode: turbo"), `mode: "turbo" is not allowed`},
		{"bare number as duration", pool("trial: {block: 150}"), "150 is not a duration; write it with a unit"},
		{"bad duration", pool("trial: {block: 5 minutes}"), `"5 minutes" is not a duration`},
		{"block too short for its scrapes", pool("trial: {block: 60s, washout: 30s}"), "trial.block"},
		{"alpha", pool("trial: {alpha: 0.9}"), "trial.alpha: 0.9"},
		{"fraction of a whole", pool("trial: {maxBlocks: 2.5}"), "2.5 is not a whole number"},
		{"no weight", pool("objective: {e2e: 0, ttft: 0}"), "objective: all weights are 0"},
		{"negative weight", pool("objective: {e2e: -1}"), "objective.e2e: -1"},
		{"SLO off the edges", pool("guard: {ttft: 3s}"), "guard.ttft: 3s is not an edge"},
		{"share above one", pool("guard: {within: 90}"), "guard.within: 90"},
		{"not a number", pool("guard: {maxRegression: .nan}"), "guard.maxRegression: NaN"},
		{"selector", pool(`selector: 'namespace=llm'`), "selector"},
		{"label", pool(`endpointLabel: "pod name"`), "endpointLabel"},
		{"bounds the wrong way round", pool("bounds: {minExternalReusableTokens: {min: 2048, max: 64}}"), "bounds"},
		{"initial outside bounds", pool("bounds: {minExternalReusableTokens: {min: 2048, max: inf}}"), "initial: 1024+8 lies outside bounds"},
		{"initial", pool("initial: fast"), "fast"},
		{"half a pair", pool("initial: 1024"), "write <tokens>+<waiting>"},
		{"zero tokens", pool("initial: {minExternalReusableTokens: 0, maxWaitingRequests: 8}"), "minExternalReusableTokens"},
		{"cron", pool(`schedule: {windows: [{start: "every night", duration: 1h}]}`), "schedule.windows[0].start"},
		{"zone", pool(`schedule: {zone: Nowhere/City}`), "schedule.zone"},
		{"web key", "web: {tls: {certFile: a.crt}}\n" + minimal, `web.tls.keyFile: is empty`},
		{"web certificate", "web: {tls: {keyFile: a.key}}\n" + minimal, `web.tls.certFile: is empty`},
		{"web client CA", "web: {tls: {clientCAFile: ca.crt}}\n" + minimal, `web.tls.clientCAFile: needs web.tls.certFile`},
		{"web section", "web: {tokens: x}\n" + minimal, `tokens`},
		{"approval", pool("approval: 1s"), "approval: 1s is not allowed"},
		{"log level", "log: {level: loud}\n" + minimal, `log.level: "loud"`},
		{"listen", "listen: everywhere\n" + minimal, "listen"},
		{"password in the URL and a token", strings.Replace(prometheus("bearerTokenFile: t"), "http://prometheus", "http://me:hunter2@prometheus", 1), "prometheus.url (user and password) and prometheus.bearerTokenFile exclude each other"},
		{"bad URL with a password", strings.Replace(minimal, "http://prometheus", "ftp://me:hunter2@prometheus", 1), `prometheus.url: "..." is not`},
		{"two credentials", prometheus(`bearerTokenFile: t, basicAuth: {username: u, passwordFile: p}`), "prometheus.bearerTokenFile and prometheus.basicAuth exclude each other"},
		{"authorization twice", prometheus(`bearerTokenFile: t, headers: ["authorization: x"]`), "exclude each other"},
		{"user without a password", prometheus(`basicAuth: {username: u}`), "prometheus.basicAuth: username and passwordFile"},
		{"half of OAuth2", prometheus(`oauth2: {clientID: c, tokenURL: "https://t"}`), "clientID and clientSecretFile are both required"},
		{"scopes of nobody", prometheus(`oauth2: {scopes: [a]}`), "prometheus.oauth2: has no clientID"},
		{"token endpoint", prometheus(`oauth2: {clientID: c, clientSecretFile: f, tokenURL: "here"}`), "prometheus.oauth2.tokenURL"},
		{"certificate without a key", prometheus(`tls: {certFile: c}`), "prometheus.tls: certFile and keyFile"},
		{"proxy", prometheus(`proxy: nobody`), `prometheus.proxy: "nobody"`},
		{"concurrency", prometheus(`concurrency: -1`), "prometheus.concurrency: -1"},
		{"header file", prometheus(`headerFiles: [secret]`), "prometheus.headerFiles[0]"},
		{"notification without a name", "notifications: [{format: json, url: 'http://x'}]\n" + minimal, "notifications[0].name"},
		{"format", "notifications: [{name: a, format: mail, url: 'http://x'}]\n" + minimal, `notifications[0].format: "mail"`},
		{"no URL", "notifications: [{name: a, format: json}]\n" + minimal, "notifications[0].url: give either"},
		{"kind of decision", "notifications: [{name: a, format: json, url: 'http://x', kinds: [party]}]\n" + minimal, `notifications[0].kinds: "party"`},
		{"pool of a notification", "notifications: [{name: a, format: json, url: 'http://x', pools: [b]}]\n" + minimal, `there is no pool "b"`},
		{"two targets of a name", "notifications: [{name: a, format: json, url: 'http://x'}, {name: a, format: slack, urlFile: f}]\n" + minimal, `notifications[1].name: "a" is there twice`},
		{"header", strings.Replace(minimal, "9090\"", "9090\", headers: [\"secret\"]", 1), "prometheus.headers[0]"},
		{"history", "history: {maxPerPool: 0}\n" + minimal, "history.maxPerPool: 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want %q in it", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v shows a password", err)
			}
		})
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

// All that is wrong is said at once.
func TestConfigErrorsAreJoined(t *testing.T) {
	_, err := load(t, strings.Replace(minimal, "selector:", "mode: turbo\n  trial: {alpha: 5}\n  selector:", 1))
	for _, want := range []string{"turbo", "trial.alpha"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func FuzzLoadConfig(f *testing.F) {
	f.Add(minimal)
	f.Add("pools: [{name: a, bounds: {minExternalReusableTokens: {min: inf}}}]")
	f.Add("defaults: []\npools: [1, null, {}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, text)
		if err == nil && len(c.Pools) == 0 {
			t.Error("accepted a configuration without pools")
		}
	})
}

// A configuration that could take all memory to parse is refused unread.
func TestConfigOfUnbearableSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("# big\n", maxConfigSize/6+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{path: "at most", t.TempDir(): "want a file", "/dev/zero": "want a file"} {
		if _, err := LoadConfig(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", file, err, want)
		}
	}
}
