package validation

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// compared is a check that is quick rather than right.
var compared = sync.OnceValues(func() (Check, error) {
	o := fleet.CompareOptions{Profile: fleet.Published(), Measurements: fleet.PublishedMatrix(), Seeds: []uint64{1, 2}, Duration: 20 * time.Second}
	c, err := fleet.Compare(context.Background(), o)
	return Check{Profile: o.Profile, Comparison: c, Seeds: o.Seeds, Duration: o.Duration, Shipped: true, Plots: "docs/img"}, err
})

func shortCheck(t *testing.T) Check {
	t.Helper()
	c, err := compared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const committed = "../../../docs/fleet-model.md"

// The committed document must be what the program writes, up to the figures,
// which take longer.
func TestDocumentIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`<!-- Generated: (.*) -->`).FindSubmatch(text)
	if command == nil {
		t.Fatal("the document does not say how it was generated")
	}
	var b bytes.Buffer
	if err := shortCheck(t).WriteDocument(&b, string(command[1])); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(outline(b.String()), outline(string(text))); d != "" {
		t.Errorf("regenerate docs/fleet-model.md: %s", d)
	}
	if !strings.Contains(string(text), "\n"+Parameters(fleet.Published())) {
		t.Error("the table of parameters is not that of the shipped profile")
	}
	for _, m := range fleet.PublishedMatrix() {
		row := "| " + m.Report + " | " + cell(m.PrefixTokens, m.Concurrency) + " | " + m.Setting.String() + " | " + number(&m.RequestsPerSecond, 1, 2) + " / "
		if !strings.Contains(string(text), row) {
			t.Errorf("no row %q", row)
		}
	}
	for _, p := range shortCheck(t).Pictures() {
		if !strings.Contains(string(text), "img/"+p.Name) {
			t.Errorf("plot %s is not shown", p.Name)
		}
		if _, err := os.Stat("../../../docs/img/" + p.Name); err != nil {
			t.Error(err)
		}
	}
}

// outline is a document without its figures and without the list of misfits,
// which depends on them.
func outline(text string) []string {
	var lines []string
	listed := false
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "| report | cell | policy | what"):
			listed = true
		case !strings.HasPrefix(line, "|"):
			listed = false
		}
		if listed {
			continue
		}
		line = regexp.MustCompile(`[-+]?\d[\d.,]*%?|(wrong|right)(, tie|, within the spread)?`).ReplaceAllString(line, "#")
		lines = append(lines, line)
	}
	return lines
}

func TestJSONHasTheNamesScriptsRelyOn(t *testing.T) {
	var b bytes.Buffer
	if err := shortCheck(t).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	type half struct {
		Throughput *float64 `json:"throughput_geomean_error"`
		TTFT       *float64 `json:"ttft_geomean_error"`
		Right      *int     `json:"orderings_right"`
		Total      *int     `json:"orderings_total"`
		Runs       []any    `json:"runs"`
		Orderings  []any    `json:"orderings"`
	}
	var got struct {
		Fitted  half `json:"fitted"`
		HeldOut half `json:"held_out"`
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]half{"fitted": got.Fitted, "held out": got.HeldOut} {
		if h.Throughput == nil || h.TTFT == nil || h.Right == nil || h.Total == nil || *h.Total != len(h.Orderings) {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if len(got.Fitted.Runs) != 24 || len(got.HeldOut.Runs) != 40 || *got.Fitted.Total != 12 || *got.HeldOut.Total != 50 {
		t.Errorf("%d and %d runs, %d and %d orderings", len(got.Fitted.Runs), len(got.HeldOut.Runs), *got.Fitted.Total, *got.HeldOut.Total)
	}
}

// What is right or wrong by less than seeds differ is said to be.
func TestVerdictsOwnUpToLuck(t *testing.T) {
	v := func(v float64) *float64 { return &v }
	for want, o := range map[string]order{
		"right":                    {Simulated: v(-0.05), Spread: v(0.01), Right: true},
		"right, within the spread": {Simulated: v(-0.001), Spread: v(0.003), Right: true},
		"wrong, within the spread": {Simulated: v(0.001), Spread: v(0.003)},
		"right, tie":               {Simulated: v(0.001), Spread: v(0.003), Right: true, Tie: true},
		"wrong":                    {},
	} {
		if got := verdict(o); got != want {
			t.Errorf("%+v: %q; want %q", o, got, want)
		}
	}
}

// The shipped profile reproduces the published runs as well as docs/fleet-model.md
// says, but for the external share.
func TestShippedProfileMeetsItsTargets(t *testing.T) {
	o := fleet.CompareOptions{Profile: fleet.Published(), Measurements: fleet.PublishedMatrix(), Seeds: []uint64{1, 2}}
	c, err := fleet.Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]struct {
		fleet.FitErrors
		throughput, ttft fleet.Figure
	}{"fitted": {c.Fitted, 0.03, 0.15}, "held out": {c.HeldOut, 0.06, 0.25}} {
		if !(h.ThroughputError <= h.throughput && h.TTFTError <= h.ttft && h.CollapseFactor <= 2) {
			t.Errorf("%s: errors of %v in throughput, %v in mean TTFT, a factor of %v in p99 under collapse", name, h.ThroughputError, h.TTFTError, h.CollapseFactor)
		}
	}
	for _, r := range c.Orderings() {
		ungated := r.B.Policy == "threshold" && r.B.MaxWaiting == 0 // one of these is wrong, as the document says
		if !r.Right && !ungated {
			t.Errorf("%s %s: %v against %v is %+.3f; published %+.3f", r.Report, cell(r.PrefixTokens, r.Concurrency), r.A, r.B, r.Simulated, r.Published)
		}
	}
}

func TestMisfitsAreListed(t *testing.T) {
	v := func(p, s float64) pair { return pair{&p, &s} }
	good := row{Throughput: v(10, 10.5), TTFT: v(1, 1.2), Tail: v(1, 1.9), Share: v(0.1, 0.149)}
	if got := misfits([]row{good, {Throughput: pair{}}}); got != nil {
		t.Errorf("listed %v", got)
	}
	bad := row{Throughput: v(10, 9), TTFT: v(1, 0.7), Tail: v(1, 2.1), Share: v(0.1, 0.16)}
	var what []string
	for _, m := range misfits([]row{bad}) {
		what = append(what, m.What)
	}
	if d := cmp.Diff([]string{"requests/s", "mean TTFT s", "p99 TTFT s", "external %"}, what); d != "" {
		t.Error(d)
	}
}

func TestPlotsAreWellFormed(t *testing.T) {
	for _, p := range shortCheck(t).Pictures() {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b.Bytes(), []byte("NaN")) || bytes.Contains(b.Bytes(), []byte("Inf")) || bytes.Contains(b.Bytes(), []byte("%!")) {
			t.Errorf("%s: values that are no numbers", p.Name)
		}
		points := strings.Count(b.String(), "<title>")
		if len(p.points) != points || points < 20 {
			t.Errorf("%s: %d points drawn of %d", p.Name, points, len(p.points))
		}
		d := xml.NewDecoder(&b)
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
		}
	}
}

// docs/workloads.md must name every scenario.
func TestWorkloadsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fleet.Names() {
		if slices.Contains([]string{"1k", "2k", "4k", "8k"}, strings.SplitN(name, "-c", 2)[0]) {
			continue // a cell
		}
		if !bytes.Contains(text, []byte("`"+name+"`")) {
			t.Errorf("scenario %s is not in docs/workloads.md", name)
		}
	}
}

// A user's own data gets the tables, and nothing of the published story.
func TestDocumentOfOwnDataTellsNoStory(t *testing.T) {
	m := fleet.Measurement{Report: "mine", PrefixTokens: 1000, Concurrency: 4, Setting: fleet.Setting{Policy: "load"}, RequestsPerSecond: 2}
	p := fleet.Published()
	p.Name = "my fleet"
	o := fleet.CompareOptions{Profile: p, Measurements: []fleet.Measurement{m}, Fitted: []string{"mine"}, Seeds: []uint64{3}, Duration: 20 * time.Second}
	compared, err := fleet.Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := Check{Profile: p, Comparison: compared, Seeds: o.Seeds, Duration: o.Duration}
	text := rendered(t, c)
	for _, want := range []string{
		"# How well profile my fleet fits", "    kvtuner calibrate --check\n", "each of 1 measured runs for\n20s with each of 1 seeds from 3 on",
		"| fitted | 1 | ", "| not measured | none to compare | not measured | none collapsed |",
		"No report has two policies in one cell", "| mine | 1000/C4 | load | 2.00 / ", " | - | - / ", "| `stepBase` |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"ublished", "H100", "| held out |", "### Runs held out", "![", "Mechanism", "0.0% |\n", "%!"} {
		if strings.Contains(strings.ReplaceAll(text, "| published |", ""), not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
	c.Plots = "my plots"
	if text := rendered(t, c); !strings.Contains(text, "(my%20plots/fleet-throughput.svg)") || strings.Contains(text, "fleet-ttft.svg") {
		t.Errorf("want the one plot that has points:\n%s", text)
	}
	var b bytes.Buffer
	if err := c.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"ttft_geomean_error": null`) {
		t.Errorf("an error of what was not measured: %s", b.String())
	}
}

func rendered(t *testing.T, c Check) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.WriteDocument(&b, "kvtuner calibrate --check"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTableOfEmptyHalves(t *testing.T) {
	c := shortCheck(t)
	c.Comparison.Runs = c.Comparison.Runs[:2]
	c.Comparison.HeldOut = fleet.FitErrors{}
	var b bytes.Buffer
	if err := c.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "held out") || !strings.Contains(b.String(), "fitted: throughput") {
		t.Error(b.String())
	}
}
