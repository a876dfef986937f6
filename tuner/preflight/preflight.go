package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Prometheus is what is asked; promv1.API has it.
type Prometheus interface {
	tuner.Prometheus
	Buildinfo(ctx context.Context) (promv1.BuildinfoResult, error)
}

// Documents is where the pool's document is read.
type Documents interface {
	Load(ctx context.Context) (*store.Document, error)
	LoadCheckpoint(ctx context.Context) ([]byte, error)
}

// Options are what is looked at. All but At and Writable are required.
type Options struct {
	Settings   tuner.Settings
	Prometheus Prometheus
	// QueryTimeout bounds each question.
	QueryTimeout time.Duration
	Documents    Documents
	// Writable says why the store or the history cannot be written, if so: by the
	// name of the setting. Nil finds nothing.
	Writable func() map[string]error
	// Now is this machine's clock.
	Now func() time.Time
	// At is the instant that is looked at; the zero time is Prometheus' own now.
	At time.Time
}

// Report is what one look has found.
type Report struct {
	Pool string    `json:"pool"`
	At   time.Time `json:"at"`
	// Version of the server, if it says so.
	Version  string          `json:"prometheus,omitempty"`
	Findings []tuner.Finding `json:"findings"`
}

// Worst is the level of the gravest finding; what was skipped counts as fine,
// for its cause is a finding of its own.
func (r Report) Worst() tuner.Level {
	worst := tuner.Fine
	for _, f := range r.Findings {
		switch {
		case f.Level == tuner.Failure:
			return tuner.Failure
		case f.Level == tuner.Warning:
			worst = tuner.Warning
		}
	}
	return worst
}

// Amiss are the findings that something should be done about.
func (r Report) Amiss() []tuner.Finding {
	var out []tuner.Finding
	for _, f := range r.Findings {
		if f.Level == tuner.Failure || f.Level == tuner.Warning {
			out = append(out, f)
		}
	}
	return out
}

// Run makes every check, in order. It ends with ctx at the latest.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Prometheus == nil || o.Documents == nil || o.Now == nil || o.QueryTimeout <= 0 {
		return Report{}, errors.New("preflight: Prometheus, query timeout, documents and clock are required")
	}
	p := &probe{Options: o, at: o.At, answers: map[string]answer{}}
	if p.at.IsZero() {
		p.at = o.Now()
	}
	r := Report{Pool: o.Settings.Name}
	for _, c := range checks {
		r.Findings = append(r.Findings, p.make(ctx, c)...)
	}
	r.At, r.Version = p.at.UTC(), p.version
	return r, nil
}

// make one check.
func (p *probe) make(ctx context.Context, c check) []tuner.Finding {
	p.unasked, p.found = "", nil
	c.run(ctx, p)
	if p.unasked != "" {
		p.found = []tuner.Finding{{Level: tuner.Skipped, Found: "not known: " + p.unasked}}
	}
	for i := range p.found {
		p.found[i].Check = c.name
	}
	return p.found
}

// fine notes that there is nothing to do.
func (p *probe) fine(format string, args ...any) {
	p.found = append(p.found, tuner.Finding{Level: tuner.Fine, Found: shown(fmt.Sprintf(format, args...))})
}

// skip notes that there is nothing to look at.
func (p *probe) skip(format string, args ...any) {
	p.found = append(p.found, tuner.Finding{Level: tuner.Skipped, Found: shown(fmt.Sprintf(format, args...))})
}

// remedy is a setting and what to do about it.
type remedy struct{ setting, fix string }

func (p *probe) warn(r remedy, format string, args ...any) { p.note(tuner.Warning, r, format, args) }

func (p *probe) fail(r remedy, format string, args ...any) { p.note(tuner.Failure, r, format, args) }

func (p *probe) note(l tuner.Level, r remedy, format string, args []any) {
	p.found = append(p.found, tuner.Finding{Level: l, Setting: r.setting, Fix: shown(r.fix), Found: shown(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))})
}
