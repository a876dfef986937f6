package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// object reads a JSON object field by field. encoding/json would match names
// without regard to case, keep the last of two equal names and leave a missing
// field at zero, which for a threshold is a value with a meaning.
//
// The first error sticks and is returned by close.
type object struct {
	fields map[string]json.RawMessage
	names  []string // in the order of the input
	known  []string
	err    error
}

// readObject splits raw into its fields.
func readObject(raw []byte) *object {
	o := &object{fields: map[string]json.RawMessage{}}
	o.err = o.split(raw)
	return o
}

func (o *object) split(raw []byte) error {
	if !utf8.Valid(raw) {
		return refuse("", string(raw), "valid UTF-8")
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return &FieldError{Value: "an empty input", Allowed: "a JSON object"}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return refuse("", bytes.TrimSpace(raw), "a JSON object")
	}
	for d.More() {
		if err := o.add(d); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return broken(d, err)
	}
	if rest := bytes.TrimSpace(raw[d.InputOffset():]); len(rest) > 0 {
		return refuse("", string(rest), "nothing after the JSON object")
	}
	return nil
}

func (o *object) add(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return broken(d, err)
	}
	name, _ := t.(string)
	if _, found := o.fields[name]; found {
		return &FieldError{Field: fieldName(name), Value: "a repeated field", Allowed: "it once"}
	}
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return under(fieldName(name), broken(d, err))
	}
	o.fields[name] = value
	o.names = append(o.names, name)
	return nil
}

func broken(d *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end of input")
	}
	return &FieldError{Value: fmt.Sprintf("broken JSON (%v, near byte %d)", err, d.InputOffset()), Allowed: "a complete JSON object"}
}

// require reads a field that must be there.
func (o *object) require(name string, read func([]byte) error) {
	if o.err == nil && o.fields[name] == nil {
		o.err = &FieldError{Field: name, Value: "a missing field", Allowed: "it to be set"}
		return
	}
	o.allow(name, read)
}

// allow reads a field if it is there.
func (o *object) allow(name string, read func([]byte) error) {
	o.known = append(o.known, name)
	value, found := o.fields[name]
	if o.err != nil || !found {
		return
	}
	o.err = under(name, read(value))
}

// close returns the first error, or one for a field that nobody asked for.
func (o *object) close() error {
	if o.err != nil {
		return o.err
	}
	for _, name := range o.names {
		if !slices.Contains(o.known, name) {
			return &FieldError{Field: fieldName(name), Value: "an unknown field", Allowed: "only " + strings.Join(o.known, ", ")}
		}
	}
	return nil
}

// fieldName quotes a name that could garble an error message.
func fieldName(name string) string {
	if namePattern.MatchString(name) {
		return shorten(name)
	}
	return show(name)
}

// into returns a reader of one value by encoding/json. That takes null for
// "leave as it is", so null is refused here.
func into[T any](to *T, allowed string) func([]byte) error {
	return func(raw []byte) error {
		if string(raw) == "null" || json.Unmarshal(raw, to) != nil {
			return refuse("", raw, allowed)
		}
		return nil
	}
}
