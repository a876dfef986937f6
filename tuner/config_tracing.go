package tuner

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/viper"
)

// TracingConfig says where spans of the loop go, by OTLP over HTTP.
type TracingConfig struct {
	// Endpoint is the base URL of an OTLP receiver, without /v1/traces; empty
	// traces nothing.
	Endpoint string `mapstructure:"endpoint"`
	// SampleRatio is the share of steps that are traced, above 0, at most 1.
	SampleRatio float64 `mapstructure:"sampleRatio"`
	// HeaderFiles are headers whose value is the content of a file, as "Name: path".
	// They are read at each use.
	HeaderFiles []string `mapstructure:"headerFiles"`
	// CAFile holds the authorities to trust; empty trusts the system's.
	CAFile string `mapstructure:"caFile"`
}

func setTracingDefaults(v *viper.Viper) {
	v.SetDefault("tracing.endpoint", "")
	v.SetDefault("tracing.sampleRatio", 1)
	v.SetDefault("tracing.caFile", "")
}

func (t TracingConfig) validate() error {
	errs := []error{checkPairs("tracing.headerFiles", t.HeaderFiles, ":", "Name: path")}
	if !(t.SampleRatio > 0 && t.SampleRatio <= 1) {
		errs = append(errs, fmt.Errorf("tracing.sampleRatio: %v is not allowed; above 0, at most 1 (an empty tracing.endpoint traces nothing)", t.SampleRatio))
	}
	if t.Endpoint == "" {
		return errors.Join(errs...)
	}
	errs = append(errs, checkURL("tracing.endpoint", t.Endpoint, ", nor empty (no tracing)"))
	if u, err := url.Parse(t.Endpoint); err == nil && u.User != nil {
		errs = append(errs, errors.New("tracing.endpoint: has a user name in it; send credentials with tracing.headerFiles, as \"Authorization: path\""))
	}
	return errors.Join(errs...)
}
