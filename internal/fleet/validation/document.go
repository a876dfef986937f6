package validation

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"math"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

//go:embed *.md.tmpl
var documents embed.FS

var document = template.Must(template.New("documents").Funcs(template.FuncMap{
	"first":      func(s []uint64) uint64 { return s[0] },
	"last":       func(s []uint64) uint64 { return s[len(s)-1] },
	"figure":     figure,
	"signed":     signed,
	"off":        func(p pair) string { return p.off(1) },
	"percent":    func(v *float64) string { return percent(v, 1) },
	"both":       both,
	"cell":       cell,
	"share":      shareError,
	"collapse":   collapse,
	"verdict":    verdict,
	"parameters": Parameters,
	"free":       fleet.FreeParameters,
	"move":       move,
}).ParseFS(documents, "*.tmpl"))

// WriteDocument writes the check in Markdown and says that it was made by
// command: docs/fleet-model.md where the check is of what is shipped, else the
// same tables without the story of the published runs.
func (c Check) WriteDocument(w io.Writer, command string) error {
	name := "check.md.tmpl"
	if c.Shipped {
		name = "fleet-model.md.tmpl"
	}
	fitted, held := c.part(true), c.part(false)
	var b bytes.Buffer
	err := document.ExecuteTemplate(&b, name, struct {
		Check
		Command         string
		Fitted, HeldOut part
		Halves          []half
		Misfits         []misfit
	}{c, command, fitted, held, halves(fitted, held), append(misfits(fitted.Rows), misfits(held.Rows)...)})
	if err != nil {
		return fmt.Errorf("render the document: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// half is a part that has runs.
type half struct {
	Name string
	part
}

func halves(fitted, held part) []half {
	var all []half
	for _, h := range []half{{"fitted", fitted}, {"held out", held}} {
		if len(h.Rows) > 0 {
			all = append(all, h)
		}
	}
	return all
}

// PlotLinks are the pictures, where the check has any, as the document shows
// them.
func (c Check) PlotLinks() []string {
	dir := filepath.ToSlash(c.Plots)
	if c.Shipped {
		dir = strings.TrimPrefix(dir, "docs/") // where that document goes
	}
	var all []string
	for _, p := range c.Pictures() {
		all = append(all, fmt.Sprintf("![%s, simulated against published](%s)", p.Title, (&url.URL{Path: path.Join(dir, p.Name)}).EscapedPath()))
	}
	return all
}

// Mechanisms tells whether the inside of any run was measured.
func (p part) Mechanisms() bool {
	return slices.ContainsFunc(p.Rows, func(r row) bool { return r.Lookup.Published != nil })
}

func figure(v fleet.Figure) string {
	if !v.Known() {
		return "not measured"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(v))
}

// signed is a relative difference, a dash where none could be told.
func signed(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%+.1f%%", 100**v)
}

func cell(prefix, streams int) string {
	if prefix%1024 == 0 {
		return fmt.Sprintf("%dK/C%d", prefix/1024, streams)
	}
	return fmt.Sprintf("%d/C%d", prefix, streams)
}

func shareError(p fleet.FitErrors) string {
	if p.ShareTotal == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.1f points, worst %.1f", p.ShareError, p.ShareWorst)
}

func collapse(p fleet.FitErrors) string {
	if p.CollapseTotal == 0 {
		return "none collapsed"
	}
	return fmt.Sprintf("%.2f (%d runs)", p.CollapseFactor, p.CollapseTotal)
}

// verdict tells, too, what would not be one: a published tie, or a simulated
// difference that another seed may turn round.
func verdict(o order) string {
	words := "wrong"
	if o.Right {
		words = "right"
	}
	switch {
	case o.Tie:
		words += ", tie"
	case o.Simulated != nil && o.Spread != nil && math.Abs(*o.Simulated) < *o.Spread:
		words += ", within the spread"
	}
	return words
}

// misfit is one quantity of one run that is beyond its target.
type misfit struct{ Report, Cell, Policy, What, Published, Simulated string }

// Limits from which a single run is listed.
const (
	throughputLimit = 0.06 // relative
	ttftLimit       = 0.25 // relative
	tailFactor      = 2.0  // p99 TTFT
)

func misfits(rows []row) []misfit {
	var all []misfit
	for _, r := range rows {
		add := func(what string, p pair, scale float64, decimals int) {
			all = append(all, misfit{r.Report, cell(r.PrefixTokens, r.Concurrency), r.Policy, what, number(p.Published, scale, decimals), number(p.Simulated, scale, decimals)})
		}
		if beyond(r.Throughput, 1+throughputLimit) {
			add("requests/s", r.Throughput, 1, 2)
		}
		if beyond(r.TTFT, 1+ttftLimit) {
			add("mean TTFT s", r.TTFT, 1, 3)
		}
		if beyond(r.Tail, tailFactor) {
			add("p99 TTFT s", r.Tail, 1, 2)
		}
		if p := r.Share; p.Published != nil && p.Simulated != nil && 100*math.Abs(*p.Simulated-*p.Published) > fleet.ShareTarget {
			add("external %", p, 100, 1)
		}
	}
	return all
}

// beyond tells whether two values differ by more than a factor.
func beyond(p pair, factor float64) bool {
	if p.Published == nil || p.Simulated == nil {
		return false
	}
	return math.Abs(math.Log(*p.Simulated / *p.Published)) > math.Log(factor)
}

// Parameters is a table of all parameters, with the values of a profile.
func Parameters(p fleet.Profile) string {
	var b strings.Builder
	b.WriteString("| parameter | value | unit | meaning | source | range |\n|---|---|---|---|---|---|\n")
	for _, d := range fleet.Parameters() {
		unit := d.Unit
		if unit == "" {
			unit = "-"
		}
		fmt.Fprintf(&b, "| `%s` | %.10g | %s | %s | %s | %.10g to %.10g |\n", d.Name, d.Value(p), unit, d.Meaning, d.Source, d.Min, d.Max)
	}
	return b.String()
}
