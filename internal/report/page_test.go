package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func render(t *testing.T, s Story) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSameStorySameBytes(t *testing.T) {
	first, second := render(t, made()), render(t, made())
	if first != second {
		t.Error("two renderings differ")
	}
}

func TestPageFetchesNothing(t *testing.T) {
	page := render(t, made())
	for _, reach := range []string{"http:", "https:", "//", "src=", "@import", "url(", "<script", "<iframe", "srcset"} {
		if i := strings.Index(page, reach); i >= 0 {
			t.Errorf("page has %q: …%s…", reach, page[max(0, i-40):min(len(page), i+40)])
		}
	}
	if n := strings.Count(page, "<link"); n != 1 || !strings.Contains(page, `<link rel="icon" href="data:,">`) {
		t.Errorf("%d links; only an empty icon keeps browsers from asking for one", n)
	}
}

func TestPageSaysEverything(t *testing.T) {
	page := render(t, made())
	for _, want := range []string{
		"A story", "What happens.", "20m of virtual time", "seed 3", "static:1024&#43;8", "load",
		"8k-c32-slow-storage", "Storage turns slow.",
		"<b>1024&#43;8</b> from 0:00:00", "<b>8192&#43;2</b> from 0:14:00",
		`<time>0:11:00</time> <b>trial</b> <code>1024&#43;8 | 8192&#43;2</code>`,
		"it is better", "predicted to gain less",
		"&lt;script&gt;", // the reason's, as text
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q", want)
		}
	}
	for _, broken := range []string{"NaN", "Inf", "ZgotmplZ", "%!", "&lt;nil&gt;"} {
		if strings.Contains(page, broken) {
			t.Errorf("page has %q", broken)
		}
	}
}

func TestIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(render(t, made()), -1) {
		if seen[m[1]] {
			t.Errorf("id %q twice", m[1])
		}
		seen[m[1]] = true
	}
	if len(seen) == 0 {
		t.Error("no ids found")
	}
}

var svgs = regexp.MustCompile(`(?s)<svg.*?</svg>`)

func TestFiguresAreWellFormedAndNamed(t *testing.T) {
	figures := svgs.FindAllString(render(t, made()), -1)
	if len(figures) != 3 {
		t.Fatalf("%d figures, want one for each width", len(figures))
	}
	for i, svg := range figures {
		counts, root := elements(t, svg)
		id := layouts(time.Hour)[i].id
		if want := fmt.Sprintf("%s-title %s-desc", id, id); root["aria-labelledby"] != want || root["role"] != "img" {
			t.Errorf("figure %s is %q, labelled by %q", id, root["role"], root["aria-labelledby"])
		}
		if counts["desc"] != 1 || counts["circle"] != 5 {
			t.Errorf("figure %s: %d descriptions, %d decisions; want 1, 5", id, counts["desc"], counts["circle"])
		}
		if n := strings.Count(svg, `class="on-trial"`); n != 2 {
			t.Errorf("figure %s: %d trial shadings, want 2", id, n)
		}
		if n := strings.Count(svg, `class="line `); n != 10 {
			t.Errorf("figure %s: %d lines, want two in each of five panels", id, n)
		}
		within(t, id, svg, root["viewBox"])
	}
}

// elements counts the elements of a document and returns the root's attributes.
func elements(t *testing.T, doc string) (counts map[string]int, root map[string]string) {
	t.Helper()
	counts, root = map[string]int{}, map[string]string{}
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return counts, root
		}
		if err != nil {
			t.Fatalf("figure is not well-formed: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if len(counts) == 0 {
			for _, a := range e.Attr {
				root[a.Name.Local] = a.Value
			}
		}
		counts[e.Name.Local]++
	}
}

// within checks that every rectangle, circle and text lies in the view box.
func within(t *testing.T, id, svg, viewBox string) {
	t.Helper()
	var width, height float64
	if _, err := fmt.Sscanf(viewBox, "0 0 %f %f", &width, &height); err != nil {
		t.Fatalf("figure %s: view box %q", id, viewBox)
	}
	for _, m := range regexp.MustCompile(` (c?[xy])="([^"]+)"`).FindAllStringSubmatch(svg, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		limit := height
		if strings.HasSuffix(m[1], "x") {
			limit = width
		}
		if err != nil || v < 0 || v > limit {
			t.Errorf("figure %s: %s of %s is outside 0 to %v", id, m[1], m[2], limit)
		}
	}
}

func TestStoriesThatDoNotFit(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Story)
		want   string
	}{
		{"no phases", func(s *Story) { s.Phases = nil }, "no phases"},
		{"a run of fewer phases", func(s *Story) { s.Others[0].Outcome.Phases = s.Others[0].Outcome.Phases[:1] }, "load has 1 phases, the story 2"},
		{"a run that is too short", func(s *Story) { s.Reference.Outcome.Seconds = s.Reference.Outcome.Seconds[:9] }, "static:1024+8 has 9 seconds, the story 1200"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := made()
			tt.change(&s)
			if err := s.Write(io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTunerThatDidNothing(t *testing.T) {
	s := made()
	s.Tuned.Outcome.Path, s.Tuned.Outcome.Decisions = nil, nil
	if page := render(t, s); !strings.Contains(page, "The tuner decided nothing.") {
		t.Error("page does not say so")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorIsTold(t *testing.T) {
	if err := made().Write(failing{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error is %v", err)
	}
}

// Text needs a contrast of 4.5, lines and dots of 3 (WCAG 2.2, AA).
func TestContrast(t *testing.T) {
	style, err := files.ReadFile("style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := strings.SplitN(string(style), "prefers-color-scheme: dark", 2)
	for name, css := range map[string]string{"light": schemes[0], "dark": schemes[1]} {
		colors := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(css, -1) {
			colors[m[1]] = m[2]
		}
		for _, pair := range []struct {
			front, back string
			least       float64
		}{
			{"ink", "page", 7}, {"ink", "strained", 7}, {"ink", "card", 7}, {"muted", "page", 4.5}, {"muted", "card", 4.5},
			{"good", "page", 4.5}, {"bad", "page", 4.5}, {"good", "card", 4.5}, {"bad", "card", 4.5},
			{"on-dot", "good", 4.5}, {"on-dot", "bad", 4.5}, {"on-dot", "trial", 4.5}, {"on-dot", "note", 4.5},
			{"tuned", "page", 3}, {"reference", "page", 3}, {"tuned", "strained", 3}, {"reference", "strained", 3},
		} {
			if c := contrast(t, colors[pair.front], colors[pair.back]); c < pair.least {
				t.Errorf("%s: contrast of %s on %s is %.2f, want %.1f", name, pair.front, pair.back, c, pair.least)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is the relative luminance of WCAG.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	rgb, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", hex, err)
	}
	channel := func(shift uint) float64 {
		v := float64(rgb>>shift&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(16) + 0.7152*channel(8) + 0.0722*channel(0)
}
