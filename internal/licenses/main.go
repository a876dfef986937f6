// Command licenses lists the licence of each module of a CycloneDX document on
// standard input. It knows nothing else of the product; make licenses runs it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

type document struct {
	Components []component `json:"components"`
}

type component struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Evidence struct {
		Licenses []struct {
			License struct {
				ID   string `json:"id"`
				Name string `json:"name"`
			} `json:"license"`
		} `json:"licenses"`
	} `json:"evidence"`
}

// standard is Go's own library, which is not in the module cache: BSD-3-Clause.
const standard = "std"

func main() {
	if err := list(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func list(from io.Reader, to io.Writer) error {
	var d document
	if err := json.NewDecoder(from).Decode(&d); err != nil {
		return fmt.Errorf("reading a CycloneDX document: %w", err)
	}
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, c := range d.Components {
		licenses := c.licenses()
		if licenses == "" {
			licenses = "not recognised, see its LICENSE"
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\n", c.Name, c.Version, licenses)
	}
	return out.Flush()
}

func (c component) licenses() string {
	if c.Name == standard {
		return "BSD-3-Clause"
	}
	var names []string
	for _, l := range c.Evidence.Licenses {
		names = append(names, l.License.ID+l.License.Name)
	}
	return strings.Join(names, ", ")
}
