package picture

import (
	"fmt"
	"github.com/prometheus/common/model"
)

// lines over time, on top of each other if the panel is stacked.
func (p *canvas) lines(one Panel, all []series, box rect) {
	field := one.Field.Defaults
	colors := coloursOf(len(all))
	below := p.legend(box, names(all), colors)
	plot := rect{box.x + 52, box.y + 4, box.w - 58, box.h - below - 24}
	p.hours(plot)
	feet, low, top := stack(all, one.stacked())
	if field.Max != nil {
		top = *field.Max
	}
	scale := linear(low, top, field.Unit)
	if field.Custom.Scale.Type == "symlog" {
		scale = symlog(top)
	}
	y := p.grid(plot, scale, field.Unit)
	p.clip++
	p.f(`<clipPath id="c%d"><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></clipPath><g clip-path="url(#c%d)">`+"\n", p.clip, plot.x, plot.y-2, plot.w, plot.h+3, p.clip)
	for _, m := range p.marks {
		p.f(`<path d="M%.1f %.1fv%.1f" stroke="%s" stroke-width="1.2" stroke-dasharray="3 2"><title>%s</title></path>`+"\n", p.x(plot, m.at), plot.y, plot.h, m.color, m.name)
	}
	for i := len(all) - 1; i >= 0; i-- {
		p.line(one, all[i], feet[i], plot, y, colors[i])
	}
	p.WriteString("</g>\n")
}

// stack says what each value stands on, and how far all of them reach.
func stack(all []series, stacked bool) (feet []map[model.Time]float64, low, top float64) {
	sum := map[model.Time]float64{}
	for _, s := range all {
		foot := map[model.Time]float64{}
		for _, v := range s.points {
			value := float64(v.Value)
			if !drawable(value) {
				continue
			}
			if stacked {
				foot[v.Timestamp] = sum[v.Timestamp]
				sum[v.Timestamp] += value
				value = sum[v.Timestamp]
			}
			low, top = min(low, value), max(top, value)
		}
		feet = append(feet, foot)
	}
	return feet, low, top
}

// spot is a value's place, and that of its foot.
type spot struct{ x, y, foot float64 }

// line draws one series: bars, or a line and the area below it, broken where nothing
// was measured.
func (p *canvas) line(one Panel, s series, feet map[model.Time]float64, plot rect, y func(float64) float64, color string) {
	custom := one.Field.Defaults.Custom
	var run []spot
	var last model.Time
	for _, v := range s.points {
		value, foot := float64(v.Value), feet[v.Timestamp]
		gap := len(run) > 0 && v.Timestamp.Sub(last) > p.source.Step*3/2
		if gap || !drawable(value) {
			p.run(run, custom.Interpolation == "stepAfter", custom.LineWidth, custom.FillOpacity, color)
			run = nil
		}
		at := spot{p.x(plot, v.Timestamp.Time()), y(value + foot), y(foot)}
		switch {
		case !drawable(value):
		case custom.DrawStyle == "bars":
			bar := plot.w * p.source.Step.Seconds() / p.source.To.Sub(p.source.From).Seconds()
			p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".75"/>`+"\n", at.x-bar/2, at.y, bar, at.foot-at.y, color)
		default:
			run, last = append(run, at), v.Timestamp
		}
	}
	p.run(run, custom.Interpolation == "stepAfter", custom.LineWidth, custom.FillOpacity, color)
}

// run draws values without a gap between them.
func (p *canvas) run(spots []spot, steps bool, thick, fill float64, color string) {
	if len(spots) == 0 {
		return
	}
	line := fmt.Sprintf("%.1f %.1f", spots[0].x, spots[0].y)
	for i, s := range spots[1:] {
		if steps {
			line += fmt.Sprintf("L%.1f %.1f", s.x, spots[i].y)
		}
		line += fmt.Sprintf("L%.1f %.1f", s.x, s.y)
	}
	area := line
	for i := len(spots) - 1; i >= 0; i-- {
		area += fmt.Sprintf("L%.1f %.1f", spots[i].x, spots[i].foot)
	}
	if fill > 0 {
		p.f(`<path d="M%sZ" fill="%s" fill-opacity="%.2f"/>`+"\n", area, color, fill/100)
	}
	p.f(`<path d="M%s" fill="none" stroke="%s" stroke-width="%.1f" stroke-linejoin="round"/>`+"\n", line, color, max(1.2, thick))
}
