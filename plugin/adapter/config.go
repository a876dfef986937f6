package adapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// Config is the configuration of the plugin: the policy's, and what only an
// adapter needs to know.
type Config struct {
	Policy plugin.Config
	// Pool is the name of the pool served, as in its parameter document; empty
	// is the value of the flag --pool-name.
	Pool string
	// Profile is the scheduling profile whose first endpoint is decided for.
	// Empty is "prefill". A request that the profile did not run for is decided
	// on its primary one; if the profile was named, that is a FaultProfile.
	Profile string
}

// ParseConfig reads the plugin's parameters: those of plugin.ParseConfig, and
// the adapter's "pool" and "profile". Every error names the field, the value and
// what is allowed, and wraps store.ErrInvalid.
func ParseConfig(raw []byte) (Config, error) {
	var c Config
	rest, own := take(raw, map[string]*string{"pool": &c.Pool, "profile": &c.Profile})
	policy, err := plugin.ParseConfig(rest)
	c.Policy = policy
	if err := errors.Join(own, err); err != nil {
		return Config{}, err
	}
	return c, nil
}

// take moves the named string fields out of a JSON object and leaves all other
// members as they are, repeated ones included: judging them is the policy's. What
// is not an object is returned whole.
func take(raw []byte, fields map[string]*string) (rest []byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return raw, nil
	}
	out, found, errs := []byte{'{'}, false, []error(nil)
	for decoder.More() {
		name, value, err := member(decoder)
		if err != nil {
			return raw, nil
		}
		if field, own := fields[name]; own {
			found = true
			errs = append(errs, takeString(name, value, field))
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return raw, nil
		}
		out = slices.Concat(out, quoted, []byte{':'}, value)
	}
	if !found {
		return raw, nil
	}
	return append(out, raw[decoder.InputOffset():]...), errors.Join(errs...)
}

func member(decoder *json.Decoder) (name string, value json.RawMessage, err error) {
	token, err := decoder.Token()
	if err != nil {
		return "", nil, err
	}
	name, _ = token.(string)
	return name, value, decoder.Decode(&value)
}

func takeString(name string, value json.RawMessage, field *string) error {
	if *field != "" {
		return &store.FieldError{Field: name, Value: string(value), Allowed: "one value, not two"}
	}
	var text *string
	if err := json.Unmarshal(value, &text); err != nil || text == nil || *text == "" {
		return &store.FieldError{Field: name, Value: string(value), Allowed: "the name of a " + name + ", or leave it out"}
	}
	*field = *text
	return nil
}

// PoolFlag is the value of the EPP's flag --pool-name, empty if there is none.
func PoolFlag() string { return flagValue("pool-name") }

// KubeconfigFlag is the value of the EPP's flag --kubeconfig, empty if there is none.
func KubeconfigFlag() string { return flagValue("kubeconfig") }

func flagValue(name string) string {
	if f := pflag.Lookup(name); f != nil {
		return f.Value.String()
	}
	if f := flag.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
