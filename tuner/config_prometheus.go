package tuner

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/viper"
)

// PrometheusConfig says where metrics come from, and how to get at them. Secrets
// are read from files at each use, so that rotation needs no restart; none is
// ever logged or shown.
type PrometheusConfig struct {
	// URL is the base of an API that is Prometheus': Prometheus, Thanos, Mimir,
	// VictoriaMetrics.
	URL string `mapstructure:"url"`
	// Timeout bounds each query, its credentials included, 100 ms to 5 min.
	Timeout time.Duration `mapstructure:"timeout"`
	// Concurrency is how many queries run at a time, 1 to 1000; 0 is no limit: a
	// pool asks one query at a time. Below the number of pools, one that waits for
	// a slow query delays others.
	Concurrency int `mapstructure:"concurrency"`
	// Headers are sent with each query, as "Name: value" (such as
	// "X-Scope-OrgID: team-a"); a list, since header names are case-preserving.
	Headers []string `mapstructure:"headers"`
	// HeaderFiles are headers whose value is the content of a file, as "Name: path".
	HeaderFiles []string `mapstructure:"headerFiles"`
	// BearerTokenFile holds a token that is sent as "Authorization: Bearer".
	BearerTokenFile string     `mapstructure:"bearerTokenFile"`
	BasicAuth       BasicAuth  `mapstructure:"basicAuth"`
	OAuth2          OAuth2     `mapstructure:"oauth2"`
	TLS             TLSOptions `mapstructure:"tls"`
	// Proxy is the URL of an HTTP proxy; empty goes by the environment
	// (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), "none" uses none.
	Proxy string `mapstructure:"proxy"`
}

// BasicAuth is a user name and the file that holds the password.
type BasicAuth struct {
	Username     string `mapstructure:"username"`
	PasswordFile string `mapstructure:"passwordFile"`
}

// OAuth2 gets tokens by client credentials (RFC 6749, section 4.4).
type OAuth2 struct {
	ClientID         string `mapstructure:"clientID"`
	ClientSecretFile string `mapstructure:"clientSecretFile"`
	TokenURL         string `mapstructure:"tokenURL"`
	// Scopes asked for.
	Scopes []string `mapstructure:"scopes"`
	// EndpointParams are sent to the token endpoint besides, as "name=value" such
	// as "audience=prometheus".
	EndpointParams []string `mapstructure:"endpointParams"`
}

// TLSOptions are those of https; the certificates are read again when they
// change.
type TLSOptions struct {
	// CAFile holds the authorities to trust; empty trusts the system's.
	CAFile string `mapstructure:"caFile"`
	// CertFile and KeyFile are the client's own (mTLS).
	CertFile string `mapstructure:"certFile"`
	KeyFile  string `mapstructure:"keyFile"`
	// ServerName that the server's certificate must have, if not the URL's host.
	ServerName string `mapstructure:"serverName"`
	// InsecureSkipVerify accepts any certificate: for tests only.
	InsecureSkipVerify bool `mapstructure:"insecureSkipVerify"`
}

// NoProxy is the value of prometheus.proxy that ignores the environment's.
const NoProxy = "none"

func setPrometheusDefaults(v *viper.Viper) {
	v.SetDefault("prometheus.url", "")
	v.SetDefault("prometheus.timeout", "10s")
	v.SetDefault("prometheus.concurrency", 0)
	v.SetDefault("prometheus.tls.insecureSkipVerify", false)
	for _, key := range []string{
		"bearerTokenFile", "basicAuth.username", "basicAuth.passwordFile", "oauth2.clientID", "oauth2.clientSecretFile",
		"oauth2.tokenURL", "tls.caFile", "tls.certFile", "tls.keyFile", "tls.serverName", "proxy",
	} {
		v.SetDefault("prometheus."+key, "")
	}
}

// Validate names every setting that is refused, and what is allowed.
func (p PrometheusConfig) Validate() error {
	errs := []error{
		between("prometheus.timeout", p.Timeout, 100*time.Millisecond, 5*time.Minute),
		checkURL("prometheus.url", p.URL, fmt.Sprintf(" (or set %s_PROMETHEUS_URL)", EnvPrefix)),
		checkPairs("prometheus.headers", p.Headers, ":", "Name: value"),
		checkPairs("prometheus.headerFiles", p.HeaderFiles, ":", "Name: path"),
		p.validateCredentials(), p.OAuth2.validate(), p.TLS.validate(),
	}
	if p.Concurrency < 0 || p.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("prometheus.concurrency: %d is not allowed; 1 to 1000, or 0 for no limit", p.Concurrency))
	}
	if p.Proxy != "" && p.Proxy != NoProxy {
		errs = append(errs, checkURL("prometheus.proxy", p.Proxy, ", nor empty (the environment's), nor "+NoProxy))
	}
	return errors.Join(errs...)
}

// checkURL never repeats a URL that may have a password in it.
func checkURL(setting, value, otherwise string) error {
	u, err := url.Parse(value)
	if err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		return nil
	}
	if strings.Contains(value, "@") {
		value = "..."
	}
	return fmt.Errorf("%s: %q is not an http or https URL%s", setting, value, otherwise)
}

func checkPairs(setting string, lines []string, separator, form string) error {
	var errs []error
	for i, line := range lines {
		if name, _, ok := strings.Cut(line, separator); !ok || strings.TrimSpace(name) == "" {
			errs = append(errs, fmt.Errorf("%s[%d]: has no name; write %q", setting, i, form))
		}
	}
	return errors.Join(errs...)
}

func (p PrometheusConfig) validateCredentials() error {
	var used []string
	note := func(setting string, is bool) {
		if is {
			used = append(used, "prometheus."+setting)
		}
	}
	if u, err := url.Parse(p.URL); err == nil {
		note("url (user and password)", u.User != nil)
	}
	note("bearerTokenFile", p.BearerTokenFile != "")
	note("basicAuth", p.BasicAuth != BasicAuth{})
	note("oauth2", p.OAuth2.set())
	note("headers (Authorization)", hasAuthorization(p.Headers))
	note("headerFiles (Authorization)", hasAuthorization(p.HeaderFiles))
	var errs []error
	if len(used) > 1 {
		errs = append(errs, fmt.Errorf("prometheus: %s exclude each other; keep one", strings.Join(used, " and ")))
	}
	if (p.BasicAuth.Username == "") != (p.BasicAuth.PasswordFile == "") {
		errs = append(errs, errors.New("prometheus.basicAuth: username and passwordFile belong together; give both or neither"))
	}
	return errors.Join(errs...)
}

func hasAuthorization(lines []string) bool {
	for _, line := range lines {
		if name, _, _ := strings.Cut(line, ":"); strings.EqualFold(strings.TrimSpace(name), "Authorization") {
			return true
		}
	}
	return false
}

func (o OAuth2) set() bool { return o.ClientID != "" || o.ClientSecretFile != "" || o.TokenURL != "" }

func (o OAuth2) validate() error {
	if !o.set() {
		if len(o.Scopes)+len(o.EndpointParams) > 0 {
			return errors.New("prometheus.oauth2: has no clientID, clientSecretFile and tokenURL")
		}
		return nil
	}
	errs := []error{
		checkURL("prometheus.oauth2.tokenURL", o.TokenURL, ""),
		checkPairs("prometheus.oauth2.endpointParams", o.EndpointParams, "=", "name=value"),
	}
	if o.ClientID == "" || o.ClientSecretFile == "" {
		errs = append(errs, errors.New("prometheus.oauth2: clientID and clientSecretFile are both required"))
	}
	return errors.Join(errs...)
}

func (t TLSOptions) validate() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("prometheus.tls: certFile and keyFile belong together; give both or neither")
	}
	return nil
}
