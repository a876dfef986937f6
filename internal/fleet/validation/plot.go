package validation

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Plot is a picture of the document.
type Plot struct {
	// Name of its file.
	Name string
	// Title and what the axes show.
	Title, Unit string

	log    bool
	ticks  []float64
	band   float64 // relative where log, else absolute
	points []point
}

type point struct {
	published, simulated, spread float64
	fitted                       bool
	policy, label                string
}

// emptyPlots are all there can be.
func emptyPlots() []Plot {
	return []Plot{
		{Name: "fleet-throughput.svg", Title: "Throughput", Unit: "requests/s", log: true, band: 0.05},
		{Name: "fleet-ttft.svg", Title: "Mean TTFT", Unit: "s", log: true, band: 0.25},
		{Name: "fleet-external-share.svg", Title: "External share of prompt tokens", Unit: "%", band: 5},
	}
}

// PlotNames are the files the pictures go to.
func PlotNames() []string {
	var names []string
	for _, p := range emptyPlots() {
		names = append(names, p.Name)
	}
	return names
}

// Pictures are the document's: simulated against published, where Check.Plots
// asks for them and something was measured.
func (c Check) Pictures() []Plot {
	if c.Plots == "" {
		return nil
	}
	plots := emptyPlots()
	for _, fitted := range []bool{true, false} {
		for _, r := range c.part(fitted).Rows {
			add := func(plot int, p pair, scale float64, spread *float64) {
				if p.Published == nil || p.Simulated == nil || plots[plot].log && !(*p.Published > 0 && *p.Simulated > 0) {
					return
				}
				v := point{published: *p.Published * scale, simulated: *p.Simulated * scale, fitted: fitted, policy: r.Policy}
				v.label = fmt.Sprintf("%s %d/C%d %s: %.4g published, %.4g simulated", r.Report, r.PrefixTokens, r.Concurrency, r.Policy, v.published, v.simulated)
				if spread != nil {
					v.spread = *spread * v.simulated
				}
				plots[plot].points = append(plots[plot].points, v)
			}
			add(0, r.Throughput, 1, r.ThroughputSpread)
			add(1, r.TTFT, 1, r.TTFTSpread)
			add(2, r.Share, 100, nil)
		}
	}
	for i := range plots {
		plots[i].setTicks()
	}
	return slices.DeleteFunc(plots, func(p Plot) bool { return len(p.points) == 0 })
}

// setTicks spans the points: with 1, 2 and 5 of each power of ten where log,
// else with tens.
func (p *Plot) setTicks() {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range p.points {
		low = math.Min(low, math.Min(v.published, v.simulated))
		high = math.Max(high, math.Max(v.published, v.simulated))
	}
	p.ticks = []float64{0, 10}
	if p.log {
		p.ticks = []float64{1, 2}
	}
	if len(p.points) == 0 {
		return
	}
	if !p.log {
		for t := 20.0; p.ticks[len(p.ticks)-1] < high; t += 10 {
			p.ticks = append(p.ticks, t)
		}
		return
	}
	p.ticks = nil
	for power := math.Floor(math.Log10(low)); len(p.ticks) == 0 || p.ticks[len(p.ticks)-1] < high; power++ {
		for _, digit := range []float64{1, 2, 5} {
			t := digit * math.Pow(10, power)
			if n := len(p.ticks); n == 1 && t <= low {
				p.ticks[0] = t
			} else if n == 0 || p.ticks[n-1] < high {
				p.ticks = append(p.ticks, t)
			}
		}
	}
}

// Geometry of a plot, in pixels.
const (
	plotSize   = 420.0
	plotMargin = 56.0
)

// scale maps a value to 0..1 along an axis.
func (p Plot) scale(v float64) float64 {
	low, high := p.ticks[0], p.ticks[len(p.ticks)-1]
	if p.log {
		low, high, v = math.Log(low*0.9), math.Log(high*1.1), math.Log(math.Max(v, low/2))
	}
	return (v - low) / (high - low)
}

func (p Plot) x(v float64) float64 { return plotMargin + p.scale(v)*(plotSize-1.3*plotMargin) }

func (p Plot) y(v float64) float64 {
	return plotSize - plotMargin - p.scale(v)*(plotSize-1.7*plotMargin)
}

// WriteSVG draws the plot: filled for fitted runs, open for held-out ones, with
// bars of two standard deviations over the seeds where they can be seen.
func (p Plot) WriteSVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12" role="img" aria-label="%s, simulated against published">`+"\n", plotSize, plotSize, p.Title)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", plotSize, plotSize)
	p.axes(&b)
	for _, v := range p.points {
		p.dot(&b, v)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Plot) axes(b *strings.Builder) {
	low, high := p.ticks[0], p.ticks[len(p.ticks)-1]
	fmt.Fprintf(b, `<clipPath id="area"><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></clipPath>`+"\n", p.x(low), p.y(high), p.x(high)-p.x(low), p.y(low)-p.y(high))
	for _, t := range p.ticks {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", p.x(t), p.y(low), p.x(t), p.y(high))
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", p.x(low), p.y(t), p.x(high), p.y(t))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", p.x(t), plotSize-plotMargin+18, t)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+"\n", plotMargin-8, p.y(t)+4, t)
	}
	for _, side := range []float64{0, 1, -1} {
		from, to, style := p.shift(low, side), p.shift(high, side), ` stroke-dasharray="4 4"`
		if side == 0 {
			style = ""
		}
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#888" clip-path="url(#area)"%s/>`+"\n", p.x(low), p.y(from), p.x(high), p.y(to), style)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="20" font-weight="bold">%s, %s</text>`+"\n", plotMargin, p.Title, p.Unit)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">published; dashed: %s</text>`+"\n", plotSize/2, plotSize-10, p.bandWords())
	fmt.Fprintf(b, `<text transform="translate(14 %.1f) rotate(-90)" text-anchor="middle">simulated</text>`+"\n", plotSize/2)
	for i, kind := range []string{"load", "recompute", "threshold"} {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			plotMargin+14, 40+16*float64(i), color(kind), plotMargin+24, 44+16*float64(i), kind)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="92">filled: fitted, open: held out</text>`+"\n", plotMargin+10)
}

func (p Plot) shift(v, side float64) float64 {
	if p.log {
		return v * math.Pow(1+p.band, side)
	}
	return v + side*p.band
}

func (p Plot) bandWords() string {
	if p.log {
		return fmt.Sprintf("±%g%%", 100*p.band)
	}
	return fmt.Sprintf("±%g points", p.band)
}

func (p Plot) dot(b *strings.Builder, v point) {
	fill := "white"
	if v.fitted {
		fill = color(v.policy)
	}
	if v.spread > 0 {
		x := p.x(v.published)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x, p.y(v.simulated-2*v.spread), x, p.y(v.simulated+2*v.spread), color(v.policy))
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" stroke="%s"><title>%s</title></circle>`+"\n", p.x(v.published), p.y(v.simulated), fill, color(v.policy), v.label)
}

// color of a policy, told apart by those who do not see red and green alike.
func color(policy string) string {
	switch policy {
	case "load":
		return "#d55e00"
	case "recompute":
		return "#0072b2"
	}
	return "#009e73"
}
