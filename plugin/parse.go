package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kvtuner/kvtuner/store"
)

// ParseConfig reads the plugin's parameters from JSON and fills in defaults. It
// is strict: unknown and repeated fields, null, and values of another type are
// errors. Every error found is joined; each names the field, the value and what
// is allowed, and wraps store.ErrInvalid.
func ParseConfig(raw []byte) (Config, error) {
	p := &parser{seen: map[string]bool{}, refused: map[string]bool{}}
	if !utf8.Valid(raw) || len(bytes.TrimSpace(raw)) == 0 {
		return Config{}, fmt.Errorf("read plugin parameters: %w", refuse("parameters", raw, "a JSON object in UTF-8"))
	}
	c := Config{LoadPolicy: Preserve, OffloadPolicy: Preserve}.withDefaults()
	p.object("", raw, c.fields(p))
	if c.Tuning != nil && !p.seen["probeFraction"] {
		c.ProbeFraction = DefaultProbeFraction
	}
	if p.readable {
		p.addConsequences(c.refused())
	}
	if len(p.errs) > 0 {
		return Config{}, fmt.Errorf("read plugin parameters: %w", errors.Join(p.errs...))
	}
	return c, nil
}

func (c *Config) fields(p *parser) []field {
	return []field{
		{"loadPolicy", value(p, &c.LoadPolicy, allowedPolicies)},
		{"offloadPolicy", value(p, &c.OffloadPolicy, `"preserve" or "disable"`)},
		{"minExternalReusableTokens", minimum(p, &c.MinExternalReusableTokens)},
		{"maxWaitingRequests", value(p, &c.MaxWaitingRequests, fmt.Sprintf("a whole number from 0 (no gate) to %d", maxGateLimit))},
		{"prefixMatchInfoProducerName", value(p, &c.PrefixMatchInfoProducerName, "a string")},
		{"tuning", func(path string, raw []byte) {
			c.Tuning = &Tuning{Bounds: store.DefaultBounds(), MaxAge: store.MaxLease}
			p.object(path, raw, c.Tuning.fields(p))
		}},
		{"probeFraction", value(p, &c.ProbeFraction, fmt.Sprintf("a number from 0 to %g", maxProbeFraction))},
		{"probeWaitingFactor", value(p, &c.ProbeWaitingFactor, "a number")},
		{"waitingSignal", value(p, &c.WaitingSignal, "the name of a metric, such as "+DefaultWaitingSignal)},
		{"gate", func(path string, raw []byte) {
			p.object(path, raw, []field{
				{"halfLife", duration(p, &c.Gate.HalfLife)},
				{"maxSampleAge", duration(p, &c.Gate.MaxSampleAge)},
			})
		}},
	}
}

func (t *Tuning) fields(p *parser) []field {
	return []field{
		{"file", value(p, &t.File, "a path")},
		{"configMap", func(path string, raw []byte) {
			m := &ConfigMap{Key: DefaultConfigMapKey}
			t.ConfigMap = m
			p.object(path, raw, []field{
				{"namespace", value(p, &m.Namespace, "a string")},
				{"name", value(p, &m.Name, "a string")},
				{"key", value(p, &m.Key, "a string")},
			})
		}},
		{"bounds", func(path string, raw []byte) {
			tokens, waiting := &t.Bounds.MinExternalReusableTokens, &t.Bounds.MaxWaitingRequests
			p.object(path, raw, []field{
				{"minExternalReusableTokens", ends(p, value(p, &tokens.Min, allowedTokens), value(p, &tokens.Max, allowedTokens))},
				{"maxWaitingRequests", ends(p, value(p, &waiting.Min, "a whole number"), value(p, &waiting.Max, "a whole number"))},
			})
		}},
		{"maxAge", duration(p, &t.MaxAge)},
	}
}

const allowedTokens = `a whole number of 1 or more, or "inf"`

// field is one field of an object, and what reads it.
type field struct {
	name string
	read reader
}

// reader reads the value of the field at path.
type reader func(path string, raw []byte)

// parser collects what is wrong with the parameters.
type parser struct {
	errs     []error
	readable bool            // the text is a JSON object
	seen     map[string]bool // paths of fields that are there
	refused  map[string]bool // paths of fields that have an error already
}

func (p *parser) refuse(path string, value any, allowed string) {
	p.errs = append(p.errs, refuse(path, value, allowed))
	p.refused[path] = true
}

// addConsequences adds errors about fields that could be read.
func (p *parser) addConsequences(errs []error) {
	for _, err := range errs {
		var fe *store.FieldError
		if !errors.As(err, &fe) || !p.refused[fe.Field] {
			p.errs = append(p.errs, err)
		}
	}
}

// object reads the fields of a JSON object. encoding/json would match names
// without regard to case, keep the last of two equal names and stop at the first
// error.
func (p *parser) object(path string, raw []byte, fields []field) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		p.refuse(orParameters(path), raw, "a JSON object")
		return
	}
	for d.More() {
		if err := p.member(path, d, fields); err != nil {
			p.refuse(orParameters(path), err, "a complete JSON object")
			return
		}
	}
	_, err := d.Token()
	if _, end := d.Token(); err != nil || !errors.Is(end, io.EOF) {
		p.refuse(orParameters(path), raw, "one complete JSON object and nothing after it")
		return
	}
	p.readable = p.readable || path == ""
}

func (p *parser) member(path string, d *json.Decoder, fields []field) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	name, _ := t.(string)
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	full := strings.TrimPrefix(path+"."+name, ".")
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	switch {
	case i < 0:
		p.refuse(full, "an unknown field", "only "+names(fields))
	case p.seen[full]:
		p.refuse(full, "a second value", "each field once")
	default:
		p.seen[full] = true
		fields[i].read(full, raw)
	}
	return nil
}

func orParameters(path string) string {
	if path == "" {
		return "parameters"
	}
	return path
}

func names(fields []field) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return strings.Join(all, ", ")
}

// value reads a scalar. encoding/json takes null for "leave as it is", so null
// is refused here.
func value[T any](p *parser, to *T, allowed string) reader {
	return func(path string, raw []byte) {
		if string(raw) == "null" || json.Unmarshal(raw, to) != nil {
			p.refuse(path, raw, allowed)
		}
	}
}

// minimum reads a token minimum; 0 is the same as leaving it out.
func minimum(p *parser, to *store.Tokens) reader {
	read := value(p, to, allowedTokens)
	return func(path string, raw []byte) {
		if string(raw) != "0" {
			read(path, raw)
		}
	}
}

func duration(p *parser, to *time.Duration) reader {
	return func(path string, raw []byte) {
		var text string
		err := json.Unmarshal(raw, &text)
		d, bad := time.ParseDuration(text)
		if err != nil || bad != nil {
			p.refuse(path, raw, `a duration such as "500ms"`)
			return
		}
		*to = d
	}
}

func ends(p *parser, low, high reader) reader {
	return func(path string, raw []byte) {
		p.object(path, raw, []field{{"min", low}, {"max", high}})
	}
}
