package plugin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// LoadPolicy says who decides about restoring KV cache.
type LoadPolicy string

// OffloadPolicy says who decides about writing KV cache out: Preserve or
// Disable.
type OffloadPolicy string

// Policies.
const (
	// Preserve leaves the client's setting alone.
	Preserve = "preserve"
	// Disable forbids it for every request.
	Disable = "disable"
	// Threshold decides by evidence, queue and parameters; load only.
	Threshold = "threshold"
	// Adaptive is Threshold, and permits a parameter document to weigh, within its
	// thresholds, what each restore costs; load only.
	Adaptive = "adaptive"
)

// Config is the static configuration of a Policy: a superset of the parameters
// of the upstream plugin "selective-kv-policy".
type Config struct {
	LoadPolicy    LoadPolicy
	OffloadPolicy OffloadPolicy
	// MinExternalReusableTokens and MaxWaitingRequests are the parameters until
	// a document is applied; see store.Params.
	MinExternalReusableTokens store.Tokens
	MaxWaitingRequests        int
	// PrefixMatchInfoProducerName is the plugin that produces the evidence; for
	// adapters, empty is their default.
	PrefixMatchInfoProducerName string
	// Tuning is nil if no parameter document is read.
	Tuning *Tuning
	// ProbeFraction is the share of requests to be stopped that are let through
	// instead, 0 to 0.1.
	ProbeFraction float64
	// ProbeWaitingFactor times the queue limit is the smoothed queue above which
	// nothing is probed, 1 to 100.
	ProbeWaitingFactor float64
	// WaitingSignal is the engine's metric that Observe is fed with.
	WaitingSignal string
	Gate          Gate
}

// Tuning is where the parameter document is, and how far it is obeyed. Exactly
// one of File and ConfigMap is set.
type Tuning struct {
	File      string
	ConfigMap *ConfigMap
	// Bounds are what parameters are clamped to: the owner of the Endpoint
	// Picker has the last word.
	Bounds store.Bounds
	// MaxAge is how long a trial runs at most after its document was written,
	// whatever its own expiry says; 1 s to 1 h. The baseline does not expire.
	MaxAge time.Duration
}

// ConfigMap names a key of a Kubernetes ConfigMap.
type ConfigMap struct {
	// Namespace; empty is the Endpoint Picker's own.
	Namespace string
	Name      string
	Key       string
}

// Gate are the constants of the waiting-queue gate.
type Gate struct {
	// HalfLife of the moving average, 100 ms to 5 min.
	HalfLife time.Duration
	// MaxSampleAge is how old a sample may be and still count as evidence, and
	// the longest silence the average survives; 50 ms to 1 min.
	MaxSampleAge time.Duration
}

func (g Gate) decay() decay {
	return decay{halfLife: float64(g.HalfLife), maxAge: int64(g.MaxSampleAge)}
}

// Defaults. The half-life is the upstream plugin's; the sample age is several
// polls of 50 ms.
const (
	DefaultHalfLife           = 2 * time.Second
	DefaultMaxSampleAge       = 500 * time.Millisecond
	DefaultProbeFraction      = 0.02 // with tuning; without it 0
	DefaultProbeWaitingFactor = 2
	DefaultWaitingSignal      = "vllm:num_requests_waiting"
	DefaultConfigMapKey       = "parameters.json"
)

// Ranges of what can be set.
const (
	maxProbeFraction      = 0.1
	minProbeWaitingFactor = 1
	maxProbeWaitingFactor = 100
	minHalfLife           = 100 * time.Millisecond
	maxHalfLife           = 5 * time.Minute
	minSampleAge          = 50 * time.Millisecond
	maxSampleAge          = time.Minute
	minMaxAge             = time.Second
)

// Params are the parameters in force without a document.
func (c Config) Params() store.Params {
	return store.Params{
		MinExternalReusableTokens: c.MinExternalReusableTokens,
		MaxWaitingRequests:        c.MaxWaitingRequests,
	}
}

// Thresholds says whether requests are decided by evidence and parameters.
func (c Config) Thresholds() bool { return c.LoadPolicy == Threshold || c.LoadPolicy == Adaptive }

// limits are what a document in force has to keep to.
type limits struct {
	bounds   store.Bounds
	maxAge   time.Duration
	adaptive bool // permitted
}

func (c Config) limits() limits {
	l := limits{bounds: store.DefaultBounds(), maxAge: store.MaxLease, adaptive: c.LoadPolicy == Adaptive}
	if c.Tuning != nil {
		l.bounds, l.maxAge = c.Tuning.Bounds, c.Tuning.MaxAge
	}
	return l
}

func (c Config) withDefaults() Config {
	orDefault(&c.LoadPolicy, Preserve)
	orDefault(&c.OffloadPolicy, Preserve)
	orDefault(&c.ProbeWaitingFactor, DefaultProbeWaitingFactor)
	orDefault(&c.WaitingSignal, DefaultWaitingSignal)
	orDefault(&c.Gate.HalfLife, DefaultHalfLife)
	orDefault(&c.Gate.MaxSampleAge, DefaultMaxSampleAge)
	if c.Tuning != nil {
		tuning := c.Tuning.withDefaults()
		c.Tuning = &tuning
	}
	return c
}

func (t Tuning) withDefaults() Tuning {
	orDefault(&t.Bounds, store.DefaultBounds())
	orDefault(&t.MaxAge, store.MaxLease)
	if t.ConfigMap != nil {
		named := *t.ConfigMap
		orDefault(&named.Key, DefaultConfigMapKey)
		t.ConfigMap = &named
	}
	return t
}

func orDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Validate returns every value that is refused, joined; each names the field,
// the value and what is allowed, and wraps store.ErrInvalid.
func (c Config) Validate() error { return errors.Join(c.refused()...) }

var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

func (c Config) refused() []error {
	var r refusals
	c.checkPolicies(&r)
	c.checkParams(&r)
	c.checkProbes(&r)
	r.check(metricName.MatchString(c.WaitingSignal),
		"waitingSignal", c.WaitingSignal, "the name of a metric, such as "+DefaultWaitingSignal)
	r.duration("gate.halfLife", c.Gate.HalfLife, minHalfLife, maxHalfLife)
	r.duration("gate.maxSampleAge", c.Gate.MaxSampleAge, minSampleAge, maxSampleAge)
	if c.Tuning != nil {
		r.check(c.Thresholds(), "tuning", "set", `no tuning unless loadPolicy is "threshold" or "adaptive"`)
		c.Tuning.check(&r)
	}
	return r
}

const allowedPolicies = `"preserve", "disable", "threshold" or "adaptive"`

func (c Config) checkPolicies(r *refusals) {
	r.check(c.Thresholds() || c.LoadPolicy == Preserve || c.LoadPolicy == Disable,
		"loadPolicy", c.LoadPolicy, allowedPolicies)
	r.check(c.LoadPolicy != Adaptive || c.Tuning != nil,
		"loadPolicy", c.LoadPolicy, `"threshold" without tuning: what restores cost comes with the parameter document`)
	r.check(c.OffloadPolicy == Preserve || c.OffloadPolicy == Disable,
		"offloadPolicy", c.OffloadPolicy, `"preserve" or "disable"`)
	r.check(c.LoadPolicy != Preserve || c.OffloadPolicy != Preserve,
		"loadPolicy", c.LoadPolicy, `another than "preserve" while offloadPolicy is "preserve", too: the plugin would do nothing`)
}

func (c Config) checkParams(r *refusals) {
	threshold := c.Thresholds()
	r.check(c.MinExternalReusableTokens > 0 || c.MinExternalReusableTokens == 0 && !threshold,
		"minExternalReusableTokens", c.MinExternalReusableTokens, `a whole number of 1 or more, or "inf", with loadPolicy "threshold" or "adaptive"`)
	r.check(c.MaxWaitingRequests >= 0 && c.MaxWaitingRequests <= maxGateLimit,
		"maxWaitingRequests", c.MaxWaitingRequests, fmt.Sprintf("a whole number from 0 (no gate) to %d", maxGateLimit))
	r.check(c.MaxWaitingRequests <= 0 || threshold,
		"maxWaitingRequests", c.MaxWaitingRequests, `no limit unless loadPolicy is "threshold" or "adaptive"`)
}

func (c Config) checkProbes(r *refusals) {
	r.check(c.ProbeFraction >= 0 && c.ProbeFraction <= maxProbeFraction,
		"probeFraction", c.ProbeFraction, fmt.Sprintf("a number from 0 to %g", maxProbeFraction))
	r.check(c.ProbeFraction <= 0 || c.Thresholds(),
		"probeFraction", c.ProbeFraction, `0 unless loadPolicy is "threshold" or "adaptive"`)
	r.check(c.ProbeWaitingFactor >= minProbeWaitingFactor && c.ProbeWaitingFactor <= maxProbeWaitingFactor,
		"probeWaitingFactor", c.ProbeWaitingFactor, fmt.Sprintf("a number from %d to %d", minProbeWaitingFactor, maxProbeWaitingFactor))
}

func (t *Tuning) check(r *refusals) {
	switch {
	case t.File != "" && t.ConfigMap != nil:
		r.check(false, "tuning", "both file and configMap", "one of them")
	case t.File == "" && t.ConfigMap == nil:
		r.check(false, "tuning", "neither file nor configMap", "one of them")
	case t.ConfigMap != nil:
		r.check(t.ConfigMap.Name != "", "tuning.configMap.name", t.ConfigMap.Name, "the name of a ConfigMap")
		r.check(t.ConfigMap.Key != "", "tuning.configMap.key", t.ConfigMap.Key, "a key of the ConfigMap")
	}
	var bad *store.FieldError
	if errors.As(t.Bounds.Validate(), &bad) {
		r.check(false, "tuning.bounds."+bad.Field, bad.Value, bad.Allowed)
	}
	r.duration("tuning.maxAge", t.MaxAge, minMaxAge, store.MaxLease)
}

// refusals collects errors of one configuration.
type refusals []error

func (r *refusals) check(ok bool, field string, value any, allowed string) {
	if !ok {
		*r = append(*r, refuse(field, value, allowed))
	}
}

func (r *refusals) duration(field string, d, low, high time.Duration) {
	r.check(d >= low && d <= high, field, d, fmt.Sprintf("a duration from %s to %s", low, high))
}

// refuse returns an error that wraps store.ErrInvalid.
func refuse(field string, value any, allowed string) error {
	if raw, ok := value.([]byte); ok {
		value = string(raw)
	}
	shown := strings.TrimSpace(fmt.Sprint(value))
	if len(shown) > 80 {
		shown = shown[:80] + "..."
	}
	if shown == "" {
		shown = `""`
	}
	return &store.FieldError{Field: field, Value: shown, Allowed: allowed}
}
