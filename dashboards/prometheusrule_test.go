package dashboards

import (
	"os"
	"strings"
	"testing"
)

// prometheusRule is rules.yaml as the Prometheus operator takes it.
const prometheusRule = "../deploy/components/monitoring/prometheusrule.yaml"

const prometheusRuleHead = `# Made from dashboards/rules.yaml by "go generate ./dashboards".
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: kvtuner, labels: {app.kubernetes.io/name: kvtuner}}
spec:
`

func TestFilesOfPrometheusRule(t *testing.T) {
	rules, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString(prometheusRuleHead)
	for line := range strings.Lines(string(rules)) {
		if strings.TrimSpace(line) != "" {
			want.WriteString("  ")
		}
		want.WriteString(line)
	}
	if *update {
		if err := os.WriteFile(prometheusRule, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(prometheusRule)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%s is out of date: run go generate ./dashboards", prometheusRule)
	}
}
