package fleet

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed profiles/qwen3-32b-8xh100.json
var profileFiles embed.FS

// publishedProfile is the embedded profile.
const publishedProfile = "profiles/qwen3-32b-8xh100.json"

// Published returns the embedded profile: Qwen3-32B on four TP2 engines of one
// 8xH100 node, fitted to the published matrix.
func Published() Profile {
	f, err := profileFiles.Open(publishedProfile)
	if err != nil {
		panic(err) // embedded at build time
	}
	defer f.Close()
	p, err := ReadProfile(f)
	if err != nil {
		panic(fmt.Errorf("embedded %s: %w", publishedProfile, err)) // covered by a test
	}
	return p
}

// profileFile is the JSON form of a Profile.
type profileFile struct {
	Name       string          `json:"name"`
	Model      string          `json:"model"`
	Source     string          `json:"source,omitempty"`
	Parameters parameterValues `json:"parameters"`
}

// parameterValues are numbers by name, each named once.
type parameterValues map[string]float64

// UnmarshalJSON names the parameter it cannot read.
func (v *parameterValues) UnmarshalJSON(text []byte) error {
	*v = make(parameterValues)
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("parameters %s: want an object of numbers by name", clip(string(text)))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		name, _ := key.(string) // keys are text
		number, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return fmt.Errorf("parameter %s: %s is not a number", clip(name), clip(string(raw)))
		}
		if _, twice := (*v)[name]; twice {
			return fmt.Errorf("parameter %s is there twice", clip(name))
		}
		(*v)[name] = number
	}
	return nil
}

// ReadProfile reads a profile file: every parameter must be there, none may be
// unknown, all must be within their range.
func ReadProfile(r io.Reader) (Profile, error) {
	var file profileFile
	if err := decodeProfile(r, &file); err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	p := Profile{Name: file.Name, Model: file.Model, Source: file.Source}
	var missing []string
	for _, d := range Parameters() {
		v, ok := file.Parameters[d.Name]
		if !ok {
			missing = append(missing, d.Name)
			continue
		}
		d.Set(&p, v)
		delete(file.Parameters, d.Name)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(file.Parameters)) {
		errs = append(errs, fmt.Errorf("unknown parameter %s", clip(name)))
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("parameters missing: %s", strings.Join(missing, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if err := p.Validate(); err != nil {
		return Profile{}, fmt.Errorf("read profile %s: %w", clip(p.Name), err)
	}
	return p, nil
}

// decodeProfile says in the words of a profile what its JSON lacks.
func decodeProfile(r io.Reader, into *profileFile) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:syntax.Offset], []byte("\n")), err)
	case errors.Is(err, io.EOF):
		return errors.New("the file is empty; want a JSON object with name, model, source and parameters")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file ends in the middle of its JSON object")
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("%s: a JSON %s; want text", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("a JSON %s; want an object with name, model, source and parameters", wrong.Value)
	case err != nil && strings.Contains(err.Error(), "unknown field"):
		return fmt.Errorf("%w; allowed: name, model, source, parameters", err)
	case err != nil:
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more after the JSON object; keep one profile a file")
	}
	return nil
}

// WriteProfile writes a profile file, parameters in the order of Parameters.
func WriteProfile(w io.Writer, p Profile) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("write profile %q: %w", p.Name, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"name\": %s,\n  \"model\": %s,\n  \"source\": %s,\n  \"parameters\": {", quote(p.Name), quote(p.Model), quote(p.Source))
	for i, d := range Parameters() {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(d.Value(p))
		if err != nil {
			return fmt.Errorf("write profile %q: %s: %w", p.Name, d.Name, err)
		}
		fmt.Fprintf(&b, "\n    %q: %s", d.Name, v)
	}
	b.WriteString("\n  }\n}\n")
	_, err := w.Write(b.Bytes())
	return err
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string always marshals
	return string(b)
}
