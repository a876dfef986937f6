package picture

import (
	"context"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// Pixels. A dashboard's grid has 24 columns.
const (
	width  = 1200.
	column = width / 24
	row    = 30.
	header = 40.
	gap    = 4.
)

// palette is Grafana's classic one, darker where it must be read on white.
var palette = []string{"#56a64b", "#d9a514", "#3274d9", "#e55b00", "#c4162a", "#8f3bb8", "#1f9e9e", "#7c2ea3", "#6b6f76", "#a16207"}

var named = map[string]string{
	"green": "#56a64b", "blue": "#3274d9", "orange": "#e55b00", "red": "#c4162a", "purple": "#8f3bb8",
}

// canvas is an SVG under way.
type canvas struct {
	strings.Builder
	source Source
	marks  []mark
	clip   int
}

// mark is an annotation.
type mark struct {
	at    time.Time
	color string
	name  string
}

// rect is a place on the picture.
type rect struct{ x, y, w, h float64 }

// Draw a dashboard. It returns the titles of panels that have nothing to show.
func Draw(ctx context.Context, w io.Writer, d Dashboard, s Source) (empty []string, err error) {
	p := &canvas{source: s}
	if err := p.annotate(ctx, d); err != nil {
		return nil, err
	}
	height := 0.0
	for _, one := range d.Panels {
		height = max(height, (one.Pos.Y+one.Pos.H)*row)
	}
	height += header + gap
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="Inter,Helvetica,Arial,'DejaVu Sans',sans-serif" font-size="11" fill="#24292e" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(d.Title))
	p.f(`<rect width="%.0f" height="%.0f" fill="#f4f5f5"/>`+"\n", width, height)
	p.text(gap+4, 25, "start", `font-size="16" font-weight="600"`, d.Title)
	p.key(d)
	for _, one := range d.Panels {
		all, err := s.of(ctx, one)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			empty = append(empty, one.Title)
		}
		p.panel(one, all)
	}
	p.WriteString("</svg>\n")
	_, err = io.WriteString(w, p.String())
	return empty, err
}

func (p *canvas) f(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *canvas) text(x, y float64, anchor, attributes, s string) {
	p.f(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, attributes, html.EscapeString(s))
}

// annotate asks when the dashboard's events were.
func (p *canvas) annotate(ctx context.Context, d Dashboard) error {
	for _, a := range d.Annotations.List {
		minutes := p.source
		minutes.Step = time.Minute
		all, err := minutes.ask(ctx, a.Expr, false)
		if err != nil {
			return fmt.Errorf("annotation %q: %w", a.Name, err)
		}
		for _, one := range all {
			for _, v := range one.points {
				p.marks = append(p.marks, mark{v.Timestamp.Time(), named[a.Color], a.Name})
			}
		}
	}
	return nil
}

// key to the annotations, at the right of the title.
func (p *canvas) key(d Dashboard) {
	x := width - gap - 4
	for i := len(d.Annotations.List) - 1; i >= 0; i-- {
		a := d.Annotations.List[i]
		x -= textWidth(a.Name)
		p.text(x, 25, "start", "", a.Name)
		p.f(`<path d="M%.1f 14v14" stroke="%s" stroke-width="2" stroke-dasharray="3 2"/>`+"\n", x-7, named[a.Color])
		x -= 22
	}
}

func textWidth(s string) float64 { return 6.1 * float64(len([]rune(s))) }

func (p *canvas) panel(one Panel, all []series) {
	box := rect{one.Pos.X*column + gap, header + one.Pos.Y*row + gap, one.Pos.W*column - 2*gap, one.Pos.H*row - 2*gap}
	p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="#fff" stroke="#dcdfe3"/>`+"\n", box.x, box.y, box.w, box.h)
	p.text(box.x+8, box.y+17, "start", `font-size="12" font-weight="600"`, one.Title)
	inner := rect{box.x + 8, box.y + 26, box.w - 16, box.h - 32}
	if len(all) == 0 {
		p.text(inner.x+inner.w/2, inner.y+inner.h/2, "middle", `fill="#6b6f76"`, "No data")
		return
	}
	switch one.Type {
	case "stat":
		p.stat(one, all, inner)
	case "barchart":
		p.groups(one, all, inner)
	case "bargauge":
		p.buckets(one, all, inner)
	case "state-timeline":
		p.states(one, all, inner)
	default:
		p.lines(one, all, inner)
	}
}

// x of a time within a plot.
func (p *canvas) x(plot rect, t time.Time) float64 {
	return plot.x + plot.w*t.Sub(p.source.From).Seconds()/p.source.To.Sub(p.source.From).Seconds()
}

// hours draws the time axis below a plot, counted from the beginning.
func (p *canvas) hours(plot rect) {
	total := p.source.To.Sub(p.source.From)
	step := 10 * time.Minute
	for total > step*time.Duration(max(2, plot.w/60)) {
		step = map[bool]time.Duration{true: step * 3, false: step * 2}[step == 10*time.Minute]
	}
	for t := time.Duration(0); t <= total; t += step {
		p.text(min(p.x(plot, p.source.From.Add(t)), plot.x+plot.w-10), plot.y+plot.h+13, "middle", `fill="#6b6f76" font-size="10"`,
			fmt.Sprintf("%d:%02d", int(t.Hours()), int(t.Minutes())%60))
	}
}

// grid draws an axis and returns how values are placed on it.
func (p *canvas) grid(plot rect, a axis, unit string) func(float64) float64 {
	y := func(v float64) float64 { return plot.y + plot.h*(1-a.at(v)) }
	for _, v := range a.ticks {
		p.f(`<path d="M%.1f %.1fh%.1f" stroke="#e7e8ea"/>`+"\n", plot.x, y(v), plot.w)
		p.text(plot.x-5, y(v)+3.5, "end", `fill="#6b6f76" font-size="10"`, shown(v, unit))
	}
	return y
}

// legend names the series under a plot, and returns the height that takes.
func (p *canvas) legend(box rect, names []string, colors []string) float64 {
	const line = 14
	type item struct {
		x    float64
		line int
	}
	var items []item
	x, n := 0.0, 0
	for _, name := range names {
		w := textWidth(name)*.93 + 24
		if x > 0 && x+w > box.w {
			x, n = 0, n+1
		}
		items = append(items, item{x, n})
		x += w
	}
	height := float64(n+1) * line
	for i, at := range items {
		y := box.y + box.h - height + float64(at.line+1)*line - 3
		p.f(`<path d="M%.1f %.1fh11" stroke="%s" stroke-width="3"/>`+"\n", box.x+at.x, y-3.5, colors[i])
		p.text(box.x+at.x+15, y, "start", `font-size="10.5"`, names[i])
	}
	return height
}

func coloursOf(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = palette[i%len(palette)]
	}
	return out
}

func names(all []series) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.name)
	}
	return out
}
