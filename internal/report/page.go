package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.gohtml timeline.gohtml style.css
var files embed.FS

var pageTemplate = template.Must(template.New("page.gohtml").ParseFS(files, "page.gohtml", "timeline.gohtml"))

// page is what the template shows.
type page struct {
	Story
	Style   template.CSS
	Span    string
	Tiles   []tile
	Figures []figure
	Whole   Comparison
	ByPhase []phaseComparison
	Decided []Decided
	Path    []pathStep
}

// tile is one headline figure.
type tile struct{ Name, Change, Tone, Verdict, Detail string }

type phaseComparison struct {
	Comparison
	N          int
	Note, Span string
}

type pathStep struct{ Clock, Params string }

// Write renders the story as one HTML file.
func (s Story) Write(w io.Writer) error {
	if err := s.validate(); err != nil {
		return err
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	p := page{
		Story: s, Style: template.CSS(style), Span: span(s.total()), Tiles: s.tiles(),
		Whole: s.Whole(), Decided: s.Decisions(),
	}
	for _, l := range layouts(s.total()) {
		p.Figures = append(p.Figures, s.figure(l))
	}
	for i, c := range s.ByPhase() {
		p.ByPhase = append(p.ByPhase, phaseComparison{c, i + 1, s.Phases[i].Note, span(s.Phases[i].Duration)})
	}
	for _, step := range Incumbents(s.Tuned.Outcome.Path) {
		p.Path = append(p.Path, pathStep{Clock(step.At), step.Params.String()})
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// tiles are the whole run under the tuner against the reference.
func (s Story) tiles() []tile {
	whole := s.Whole()
	tuned, reference := whole.Lines[0], whole.Lines[1]
	verdicts := map[string]string{"better": "better", "worse": "worse", "": "no difference to speak of"}
	var all []tile
	for i, c := range tuned.Cells {
		all = append(all, tile{
			Name: whole.Measures[i], Change: c.Change, Tone: c.Tone, Verdict: verdicts[c.Tone],
			Detail: fmt.Sprintf("%s, not %s", c.Value, reference.Cells[i].Value),
		})
	}
	return all
}
