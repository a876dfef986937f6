package results

import (
	"fmt"
	"io"
	"strings"
)

// Geometry of a plot, in pixels.
const (
	plotWidth, plotHeight = 820.0, 340.0
	left, right           = 52.0, 130.0
	top, bottom           = 34.0, 96.0
)

// least efficiency that a plot shows: what lies below is drawn at its edge.
const leastShown = 0.7

// Plot is the efficiency of each policy in each phase of a schedule.
type Plot struct {
	// Name of its file.
	Name     string
	schedule Schedule
}

// Plots of the page, one a schedule.
func (s Study) Plots() []Plot {
	var all []Plot
	for _, schedule := range s.Schedules {
		all = append(all, Plot{Name: "results-" + schedule.Name + ".svg", schedule: schedule})
	}
	return all
}

// plotted policies and their colours, told apart by those who do not see red and
// green alike.
var plotted = []struct{ policy, color string }{
	{"recompute", "#999999"}, {"static:1024+8", "#0072b2"}, {"climb", "#e69f00"}, {"tuned", "#009e73"}, {"adaptive", "#cc79a7"},
}

// WriteSVG draws it.
func (p Plot) WriteSVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12" role="img" aria-label="Efficiency by phase of the schedule %s">`+"\n", plotWidth, plotHeight, p.schedule.Name)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text x="%g" y="20" font-weight="bold">Efficiency by phase (1 is the best fixed pair of the phase), schedule %s</text>`+"\n", left, p.schedule.Name)
	p.axes(&b)
	drawn := 0
	for _, line := range plotted {
		if p.line(&b, line.policy, line.color, drawn) {
			drawn++
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Plot) x(phase, phases int) float64 {
	return left + (float64(phase)-0.5)/float64(phases)*(plotWidth-left-right)
}

func y(efficiency float64) float64 {
	e := min(max(efficiency, leastShown), 1.05)
	return top + (1.05-e)/(1.05-leastShown)*(plotHeight-top-bottom)
}

func (p Plot) axes(b *strings.Builder) {
	for e := leastShown; e < 1.06; e += 0.05 {
		color := "#dddddd"
		if e > 0.99 && e < 1.01 {
			color = "#333333"
		}
		fmt.Fprintf(b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="%s"/>`+"\n", left, y(e), plotWidth-right, y(e), color)
		fmt.Fprintf(b, `<text x="%g" y="%.1f" text-anchor="end">%.2f</text>`+"\n", left-8, y(e)+4, e)
	}
	phases := p.schedule.Phases(plotted[1].policy)
	for _, phase := range phases {
		fmt.Fprintf(b, `<text transform="translate(%.1f %g) rotate(-28)" text-anchor="end" font-size="10">%s</text>`+"\n", p.x(phase.Phase, len(phases))+6, plotHeight-bottom+16, phase.Scenario)
	}
}

// line of a policy, with bars for the 95% intervals over the seeds.
func (p Plot) line(b *strings.Builder, policy, color string, drawn int) bool {
	rows := p.schedule.Phases(policy)
	if len(rows) == 0 {
		return false
	}
	var points []string
	for _, r := range rows {
		e := r.Metrics["efficiency"]
		x := p.x(r.Phase, len(rows)) + 2*float64(drawn-2)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y(float64(e.Mean))))
		if e.N > 1 {
			fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.5"/>`+"\n", x, y(float64(e.Mean-e.CI95)), x, y(float64(e.Mean+e.CI95)), color)
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s, %s: %.3f</title></circle>`+"\n", x, y(float64(e.Mean)), color, policy, r.Scenario, float64(e.Mean))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), color)
	fmt.Fprintf(b, `<text x="%g" y="%g" fill="%s">%s</text>`+"\n", plotWidth-right+12, top+14+18*float64(drawn), color, policy)
	return true
}
