package tuner

import (
	"strings"
	"testing"
)

func TestSettingsHideSecrets(t *testing.T) {
	c, err := load(t, `
prometheus:
  url: "https://user:hunter2@prometheus:9090/base?token=hunter2"
  headers: ["X-Token: hunter2", "X-Scope-OrgID: hunter2"]
  proxy: "http://user:hunter2@proxy:3128"
notifications: [{name: oncall, format: slack, url: "https://hooks.example/services/hunter2"}]
pools:
- {name: a, store: {file: a.json}, guard: {ttft: 10s}}
- {name: b, store: {file: b.json}, schedule: {windows: [{start: "0 1 * * *", duration: 4h}]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range c.SettingsOf(c.Pools[1]) {
		if strings.Contains(s.Value, "hunter2") {
			t.Errorf("%s shows a secret: %s", s.Name, s.Value)
		}
		got[s.Name] = s.Value
	}
	for name, want := range map[string]string{
		"name": "b", "guard.ttft": "5s", "initial": "1024+8", "bounds.minExternalReusableTokens.max": "inf",
		"schedule.windows": `"0 1 * * *" for 4h0m0s`, "listen": "127.0.0.1:9095", "log.level": "info", "store.file": "b.json",
		"notifications":      "1, not shown",
		"prometheus.headers": "X-Token: (hidden), X-Scope-OrgID: (hidden)",
		"prometheus.url":     "https://(hidden)@prometheus:9090/base?(hidden)",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestSecretsByName(t *testing.T) {
	for name, tc := range map[string]struct{ value, want string }{
		"password":     {"x", hidden},
		"passwordFile": {"/run/p", "/run/p"},
		"clientSecret": {"x", hidden},
		"token":        {"", ""},
		"tokenURL":     {"https://a:b@idp/token", "https://(hidden)@idp/token"},
		"broken":       {"http://%zz", hidden},
	} {
		if got := displayText(name, tc.value); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := displayList("endpointParams", []string{"audience=x", "odd"}); got != "audience: (hidden), : (hidden)" {
		t.Errorf("parameters: %s", got)
	}
}
