package picture

import (
	"fmt"
	"math"
)

// stat shows the last value large, over what it was before.
func (p *canvas) stat(one Panel, all []series, box rect) {
	s := all[0]
	value, ok := s.last()
	if !ok {
		return
	}
	field := one.Field.Defaults
	color := named["green"]
	for _, step := range field.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			color = named[step.Color]
		}
	}
	top := 0.0
	for _, v := range s.points {
		if drawable(float64(v.Value)) {
			top = max(top, float64(v.Value))
		}
	}
	plot := rect{box.x, box.y + box.h*.58, box.w, box.h * .42}
	one.Field.Defaults.Custom.FillOpacity = 15
	p.line(one, s, nil, plot, func(v float64) float64 { return plot.y + plot.h*(1-v/max(top, 1e-9)) }, color)
	p.text(box.x+box.w/2, box.y+box.h*.42, "middle", fmt.Sprintf(`font-size="28" font-weight="600" fill="%s"`, color), shown(value, field.Unit))
}

// groups compares two queries by the label that both have.
func (p *canvas) groups(one Panel, all []series, box rect) {
	byNumber(all, "reusable")
	var edges, kinds []string
	values := map[[2]string]float64{}
	top := 0.0
	for _, t := range one.Targets {
		kinds = append(kinds, t.Legend)
	}
	for _, s := range all {
		edge := string(s.labels["reusable"])
		if len(edges) == 0 || edges[len(edges)-1] != edge {
			edges = append(edges, edge)
		}
		if v, ok := s.last(); ok {
			values[[2]string{edge, s.name}] = v
			top = max(top, v)
		}
	}
	colors := coloursOf(len(kinds))
	below := p.legend(box, kinds, colors)
	plot := rect{box.x + 52, box.y + 8, box.w - 58, box.h - below - 32}
	y := p.grid(plot, linear(0, top, one.Field.Defaults.Unit), one.Field.Defaults.Unit)
	group := plot.w / float64(len(edges))
	bar := group * .8 / float64(len(kinds))
	for i, edge := range edges {
		left := plot.x + (float64(i)+.1)*group
		for k, kind := range kinds {
			v, ok := values[[2]string{edge, kind}]
			if !ok {
				continue
			}
			p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".85"/>`+"\n", left+float64(k)*bar, y(v), bar, y(0)-y(v), colors[k])
			p.text(left+(float64(k)+.5)*bar, y(v)-3, "middle", `font-size="8"`, shown(v, one.Field.Defaults.Unit))
		}
		p.text(left+group*.4, plot.y+plot.h+14, "middle", `font-size="10" fill="#6b6f76"`, edge)
	}
	p.text(plot.x+plot.w/2, plot.y+plot.h+27, "middle", `font-size="10" fill="#6b6f76"`, "reusable tokens")
}

// buckets takes a classic histogram's cumulative counts apart.
func (p *canvas) buckets(one Panel, all []series, box rect) {
	byNumber(all, "le")
	counts := make([]float64, len(all))
	before, top := 0.0, 0.0
	for i, s := range all {
		v, _ := s.last()
		counts[i] = max(0, v-before)
		before = max(before, v)
		top = max(top, counts[i])
	}
	slot := box.w / float64(len(all))
	for i, s := range all {
		h := (box.h - 42) * counts[i] / max(top, 1e-9)
		x, foot := box.x+(float64(i)+.12)*slot, box.y+box.h-22
		p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#eceef0"/>`+"\n", x, box.y+20, slot*.76, box.h-42)
		p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, foot-h, slot*.76, h, named["green"])
		p.text(x+slot*.38, box.y+14, "middle", `font-size="10"`, thousands(math.Round(counts[i]), ""))
		p.text(x+slot*.38, foot+14, "middle", `font-size="9" fill="#6b6f76"`, s.name)
	}
}

// states shows a row a series, coloured by the mapping of its values.
func (p *canvas) states(one Panel, all []series, box rect) {
	mapped := one.Field.Defaults.Mappings[0].Options
	var words, colors []string
	for _, value := range []string{"0", "1"} {
		words, colors = append(words, mapped[value].Text), append(colors, named[mapped[value].Color])
	}
	below := p.legend(box, words, colors)
	plot := rect{box.x + 110, box.y + 2, box.w - 118, box.h - below - 20}
	p.hours(plot)
	height := plot.h / float64(len(all))
	for i, s := range all {
		y := plot.y + float64(i)*height
		p.text(plot.x-6, y+height*.55, "end", `font-size="10.5"`, s.name)
		for from := 0; from < len(s.points); {
			to := from
			for to < len(s.points) && s.points[to].Value == s.points[from].Value {
				to++
			}
			x, end := p.x(plot, s.points[from].Timestamp.Time()), p.x(plot, s.points[to-1].Timestamp.Time().Add(p.source.Step))
			p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".75"/>`+"\n",
				x, y+height*.1, min(end, plot.x+plot.w)-x, height*.8, colors[min(1, int(s.points[from].Value))])
			from = to
		}
	}
}
