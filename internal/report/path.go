package report

import (
	"strconv"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

// px prints a coordinate with a tenth of a pixel.
func px(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// polyline is the data of an SVG path through the points, broken where nothing
// was measured.
func polyline(points []point, x func(time.Duration) float64, y func(float64) float64) string {
	var b strings.Builder
	drawing := false
	for _, p := range points {
		if !measured(p.V) {
			drawing = false
			continue
		}
		command := "L"
		if !drawing {
			command = "M"
		}
		drawing = true
		b.WriteString(command + px(x(p.At)) + " " + px(y(p.V)))
	}
	return b.String()
}

// steps is the data of an SVG path that keeps each value until the next.
func steps(path []lab.Point, end time.Duration, of func(store.Params) float64, x func(time.Duration) float64, y func(float64) float64) string {
	var b strings.Builder
	for i, p := range path {
		at := y(of(p.Params))
		if i == 0 {
			b.WriteString("M" + px(x(p.At)) + " " + px(at))
			continue
		}
		b.WriteString("H" + px(x(p.At)) + "V" + px(at))
	}
	b.WriteString("H" + px(x(end)))
	return b.String()
}

// stay is a stretch during which a candidate was in force.
type stay struct {
	From, To time.Duration
	Params   store.Params
}

func candidates(path []lab.Point, end time.Duration) []stay {
	var all []stay
	for i, p := range path {
		if p.Arm != store.ArmCandidate {
			continue
		}
		to := end
		if i+1 < len(path) {
			to = path[i+1].At
		}
		all = append(all, stay{p.At, to, p.Params})
	}
	return all
}

// Incumbents is the path of the thresholds without the candidates on trial: the
// start and every change that lasted.
func Incumbents(path []lab.Point) []lab.Point {
	var kept []lab.Point
	for _, p := range path {
		if p.Arm == store.ArmCandidate {
			continue
		}
		if n := len(kept); n == 0 || kept[n-1].Params != p.Params {
			kept = append(kept, p)
		}
	}
	return kept
}

func paramsOf(path []lab.Point) []store.Params {
	var all []store.Params
	for _, p := range path {
		all = append(all, p.Params)
	}
	return all
}
