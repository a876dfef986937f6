package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kvtuner/kvtuner/tuner"
)

// probe is a look under way: what is known so far, and the check being made.
type probe struct {
	Options
	at      time.Time
	version string
	// down says why nothing can be asked; engines and replicas are their names.
	down              string
	engines, replicas []string
	answers           map[string]answer
	partial           []string

	// Of the check being made: why it could not ask, and what it found.
	unasked string
	found   []tuner.Finding
}

type answer struct {
	rows model.Vector
	err  string
}

// ask evaluates an expression; a failed one makes the whole check unknown. The
// same question is sent once.
func (p *probe) ask(ctx context.Context, format string, args ...any) (rows model.Vector, ok bool) {
	expr := fmt.Sprintf(format, args...)
	a, asked := p.answers[expr]
	if !asked {
		a = p.send(ctx, expr)
		p.answers[expr] = a
	}
	if a.err != "" && p.unasked == "" {
		p.unasked = a.err
	}
	return a.rows, a.err == ""
}

func (p *probe) send(ctx context.Context, expr string) answer {
	if p.down != "" {
		return answer{err: p.down}
	}
	value, err := p.query(ctx, expr, p.at)
	if err != nil {
		return answer{err: brief(err.Error())}
	}
	rows, ok := value.(model.Vector)
	if !ok {
		return answer{err: fmt.Sprintf("Prometheus answered with %T", value)}
	}
	return answer{rows: rows}
}

// query notes warnings: an answer that may lack a part is none.
func (p *probe) query(ctx context.Context, expr string, at time.Time) (model.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, p.QueryTimeout)
	defer cancel()
	value, warnings, _, err := p.Prometheus.Query(ctx, expr, at)
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		p.partial = append(p.partial, brief(warnings[0]))
		return nil, fmt.Errorf("the answer may be partial: %s", warnings[0])
	}
	return value, nil
}

// series evaluates a range selector.
func (p *probe) series(ctx context.Context, expr string) (model.Matrix, bool) {
	if p.down != "" {
		p.unasked = p.down
		return nil, false
	}
	value, err := p.query(ctx, expr, p.at)
	if err != nil {
		p.unasked = brief(err.Error())
		return nil, false
	}
	rows, _ := value.(model.Matrix)
	return rows, true
}

// number is the value of an expression with one series at most, 0 for none.
func (p *probe) number(ctx context.Context, format string, args ...any) (v float64, ok bool) {
	rows, ok := p.ask(ctx, format, args...)
	if len(rows) > 0 {
		v = float64(rows[0].Value)
	}
	return v, ok
}

// byLabel are the values of an expression by those of a label.
func byLabel(rows model.Vector, label string) map[string]float64 {
	out := map[string]float64{}
	for _, row := range rows {
		out[string(row.Metric[model.LabelName(label)])] += float64(row.Value)
	}
	return out
}

// values of a label, sorted, each once.
func values(rows model.Vector, label model.LabelName) []string {
	var out []string
	for _, row := range rows {
		out = append(out, string(row.Metric[label]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// some lists the first few of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// brief cuts what a server said.
func brief(s string) string { return tuner.Brief(s, 300) }

// shown makes a finding fit to be shown, whatever the names in it.
func shown(s string) string { return tuner.Brief(s, 2000) }
