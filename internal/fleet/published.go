package fleet

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Name       string             `json:"name"`
	Model      string             `json:"model"`
	Source     string             `json:"source,omitempty"`
	Parameters map[string]float64 `json:"parameters"`
}

// ReadProfile reads a profile file: every parameter must be there, none may be
// unknown, all must be within their range.
func ReadProfile(r io.Reader) (Profile, error) {
	var file profileFile
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, errors.New("read profile: more than one JSON value; keep one profile a file")
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
	if len(missing) > 0 {
		return Profile{}, fmt.Errorf("read profile: parameters missing: %s", strings.Join(missing, ", "))
	}
	for name := range file.Parameters {
		return Profile{}, fmt.Errorf("read profile: unknown parameter %q", name)
	}
	if err := p.Validate(); err != nil {
		return Profile{}, fmt.Errorf("read profile %q: %w", p.Name, err)
	}
	return p, nil
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
