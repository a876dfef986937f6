package preflight

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// askPrometheus asks for the server's time: a question that any PromQL server
// answers, whatever it holds.
func askPrometheus(ctx context.Context, p *probe) {
	value, err := p.query(ctx, "time()", p.askedAt())
	if err != nil {
		p.down = brief(err.Error())
		p.fail(accessRemedy(err), "Prometheus cannot be asked: %s", p.down)
		return
	}
	if now, ok := value.(*model.Scalar); ok && p.At.IsZero() {
		p.at = time.Unix(0, int64(float64(now.Value)*float64(time.Second)))
	}
	if info, err := p.buildinfo(ctx); err == nil {
		p.version = info.Version
		p.fine("answers as version %s", info.Version)
		return
	}
	p.fine("answers; it does not say which version it is")
}

// askedAt leaves the time to the server, unless it is given.
func (p *probe) askedAt() time.Time { return p.At }

func (p *probe) buildinfo(ctx context.Context) (promv1.BuildinfoResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.QueryTimeout)
	defer cancel()
	info, err := p.Prometheus.Buildinfo(ctx)
	if err == nil && info.Version == "" {
		err = errors.New("no version")
	}
	return info, err
}

// accessRemedy reads what to change off the error.
func accessRemedy(err error) remedy {
	said := err.Error()
	var dns *net.DNSError
	var api *promv1.Error
	is := errors.As(err, &api)
	switch {
	case strings.Contains(said, "401") && is:
		return remedy{"prometheus.bearerTokenFile", "give credentials: bearerTokenFile, basicAuth or oauth2; or the token has expired"}
	case strings.Contains(said, "403") && is:
		return remedy{"prometheus.bearerTokenFile", "these credentials may not read: give the account the right to query (on OpenShift cluster-monitoring-view), or set the tenant in prometheus.headers"}
	case strings.Contains(said, "404") && is:
		return remedy{"prometheus.url", "give the base URL of the API, without /api/v1; for Mimir it ends in /prometheus, for VictoriaMetrics in /select/0/prometheus"}
	case strings.Contains(said, "no org id"):
		return remedy{"prometheus.headers", `name the tenant: headers: ["X-Scope-OrgID: TENANT"]`}
	case strings.Contains(said, "certificate"), strings.Contains(said, "x509"):
		return remedy{"prometheus.tls.caFile", "name the file of the authority that signed the server's certificate"}
	case strings.Contains(said, "HTTP response to HTTPS client"):
		return remedy{"prometheus.url", "the server speaks http, not https"}
	case errors.As(err, &dns):
		return remedy{"prometheus.url", "the host is not known here: correct its name, or run kvtuner where it is"}
	case errors.Is(err, context.DeadlineExceeded):
		return remedy{"prometheus.timeout", "the server does not answer in time: is a network policy in between, or is prometheus.timeout too short?"}
	case strings.Contains(said, "oauth2"):
		return remedy{"prometheus.oauth2", "correct clientID, clientSecretFile or tokenURL"}
	case strings.Contains(said, "may be partial"), strings.Contains(said, "isPartial"):
		return remedy{"prometheus.url", "bring back the part that did not answer; until then nothing is decided"}
	}
	return remedy{"prometheus.url", "correct the URL, or start the server; a daemon retries by itself"}
}

// allowedSkew between the clocks: a second is lost on the way.
const allowedSkew = 5 * time.Second

func compareClocks(ctx context.Context, p *probe) {
	if p.down != "" {
		p.unasked = p.down
		return
	}
	before := p.Now()
	value, err := p.query(ctx, "time()", p.askedAt())
	if err != nil {
		p.unasked = brief(err.Error())
		return
	}
	now, ok := value.(*model.Scalar)
	if !ok {
		p.skip("Prometheus does not tell its time")
		return
	}
	here := before.Add(p.Now().Sub(before) / 2)
	skew := time.Duration(float64(now.Value)*float64(time.Second) - float64(here.UnixNano())).Round(100 * time.Millisecond)
	if !p.At.IsZero() {
		skew = p.At.Sub(here)
	}
	switch r := (remedy{"", "let NTP set the clock of both machines: windows are asked for by this clock, and trials expire by the plugin's"}); {
	case skew.Abs() >= p.Settings.SampleLength():
		p.fail(r, "Prometheus' clock is %v off, more than a sample of %v: windows are looked for where there are no points", skew, p.Settings.SampleLength())
	case skew.Abs() > allowedSkew:
		p.warn(r, "Prometheus' clock is %v off", skew)
	default:
		p.fine("Prometheus' clock is %v off", skew.Abs())
	}
}

func sawPartial(_ context.Context, p *probe) {
	if p.down != "" {
		p.unasked = p.down
		return
	}
	if n := len(p.partial); n > 0 {
		p.fail(remedy{"prometheus.url", "bring back the store or ingester that does not answer; until then samples are unknown and nothing is decided"},
			"%d answer(s) may lack a part: %s", n, p.partial[0])
		return
	}
	p.fine("no warnings")
}
