package report

import (
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

// Classes of the drawn lines.
const (
	tunedLine     = "tuned"
	referenceLine = "reference"
)

// panels lays out the figure's panels one under the other from top, and returns
// where they end.
func (d drawing) panels(top float64) (all []panel, foot float64) {
	add := func(height float64, draw func(y, height float64) panel) {
		top += panelGap - 12
		all = append(all, draw(top, height))
		top += height + 12
	}
	add(130, func(y, h float64) panel {
		return d.threshold("Restore from … reusable tokens", y, h, tokenScale(d.used()), tokensOf)
	})
	add(92, func(y, h float64) panel {
		return d.threshold("… while fewer than … requests wait", y, h, waitingScale(d.used()), waitingOf)
	})
	add(130, func(y, h float64) panel {
		return d.quantity("Throughput, requests/s", y, h, throughput, func(_, high float64) scale { return linear(high) })
	})
	add(140, func(y, h float64) panel { return d.quantity("Mean TTFT (log)", y, h, meanTTFT, logSeconds) })
	add(120, func(y, h float64) panel { return d.quantity("Mean end-to-end time (log)", y, h, meanE2E, logSeconds) })
	return all, top
}

// used are all thresholds that were in force.
func (d drawing) used() []store.Params {
	return append(paramsOf(d.path), paramsOf(d.story.Reference.Outcome.Path)...)
}

func (d drawing) threshold(title string, y, height float64, s scale, of func(store.Params) float64) panel {
	p := d.frame(title, y, height, s)
	at := func(v float64) float64 { return y + height*(1-s.at(v)) }
	line := func(class string, path []lab.Point) {
		if len(path) > 0 {
			p.Lines = append(p.Lines, lineOf(class, steps(path, d.total, of, d.x, at)))
		}
	}
	line(referenceLine, d.story.Reference.Outcome.Path)
	line(tunedLine, d.path)
	return p
}

func (d drawing) quantity(title string, y, height float64, of func(fleet.Second, time.Duration) float64, scaled func(low, high float64) scale) panel {
	w := window(d.total, d.layout.points)
	reference := average(d.story.Reference.Outcome.Seconds, w, of)
	tuned := average(d.story.Tuned.Outcome.Seconds, w, of)
	low, high, _ := extent(reference, tuned)
	s := scaled(low, high)
	p := d.frame(title+", "+span(w)+" averages", y, height, s)
	at := func(v float64) float64 { return y + height*(1-s.at(v)) }
	p.Lines = []line{
		lineOf(referenceLine, polyline(reference, d.x, at)),
		lineOf(tunedLine, polyline(tuned, d.x, at)),
	}
	return p
}

func lineOf(class, data string) line { return line{Class: class, D: data} }

// frame is a panel without its lines.
func (d drawing) frame(title string, y, height float64, s scale) panel {
	p := panel{
		Title: title, TitleY: px(y - 8),
		Box: box{X: px(d.layout.left), Y: px(y), W: px(d.plotWidth()), H: px(height)},
	}
	for _, t := range s.ticks {
		p.Grid = append(p.Grid, label{X: px(d.layout.left), Y: px(y + height*(1-s.at(t.Value))), Text: t.Label})
	}
	return p
}
