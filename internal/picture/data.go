package picture

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Source is where the data come from: a Prometheus, and the time that is looked at.
type Source struct {
	API      promv1.API
	From, To time.Time
	Step     time.Duration
	// Variables puts values in for the dashboard's variables.
	Variables *strings.Replacer
}

// series is one line, bar or row.
type series struct {
	name   string
	labels model.Metric
	points []model.SamplePair
}

// last drawable value.
func (s series) last() (float64, bool) {
	for i := len(s.points) - 1; i >= 0; i-- {
		if v := float64(s.points[i].Value); drawable(v) {
			return v, true
		}
	}
	return 0, false
}

func drawable(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// of a panel, in the order of its queries.
func (s Source) of(ctx context.Context, p Panel) ([]series, error) {
	var all []series
	for _, t := range p.Targets {
		one, err := s.ask(ctx, t.Expr, t.Instant)
		if err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		for i := range one {
			one[i].name = legend(t.Legend, one[i].labels)
		}
		slices.SortStableFunc(one, func(a, b series) int { return cmp.Compare(a.name, b.name) })
		all = append(all, one...)
	}
	return all, nil
}

func (s Source) ask(ctx context.Context, expr string, instant bool) ([]series, error) {
	expr = s.Variables.Replace(expr)
	if instant {
		v, _, _, err := s.API.Query(ctx, expr, s.To)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		vector, _ := v.(model.Vector)
		var all []series
		for _, x := range vector {
			all = append(all, series{labels: x.Metric, points: []model.SamplePair{{Timestamp: x.Timestamp, Value: x.Value}}})
		}
		return all, nil
	}
	v, _, _, err := s.API.QueryRange(ctx, expr, promv1.Range{Start: s.From, End: s.To, Step: s.Step})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	matrix, _ := v.(model.Matrix)
	var all []series
	for _, x := range matrix {
		all = append(all, series{labels: x.Metric, points: x.Values})
	}
	return all, nil
}

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

func legend(format string, labels model.Metric) string {
	return placeholder.ReplaceAllStringFunc(format, func(p string) string {
		return string(labels[model.LabelName(placeholder.FindStringSubmatch(p)[1])])
	})
}

// byNumber sorts by a label whose values are numbers.
func byNumber(all []series, label model.LabelName) {
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(number(a.labels[label]), number(b.labels[label])) })
}

func number(v model.LabelValue) float64 {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return math.Inf(1)
	}
	return f
}
