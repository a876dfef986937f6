// Package rules evaluates Prometheus recording and alerting rules on an embedded
// Prometheus at timestamps the caller chooses.
//
// It is apart from its parent so that programs without rules do not carry the
// rule engine. It must not know what the rules are about.
package rules

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/kvtuner/kvtuner/internal/prom"
)

// defaultInterval is that of groups which name none, as in Prometheus. It only
// bounds how often firing alerts would be sent on.
const defaultInterval = time.Minute

// Rules are the groups of some rule files.
type Rules struct {
	server *prom.Server
	groups []*rules.Group
	last   time.Time
}

// Alert is one active alert.
type Alert struct {
	Name string
	// State is "pending" or "firing".
	State               string
	Labels, Annotations map[string]string
	Value               float64
	ActiveAt            time.Time
}

// Load reads rule files. Unknown fields and invalid rules are errors.
func Load(s *prom.Server, files ...string) (*Rules, error) {
	m := rules.NewManager(&rules.ManagerOptions{
		Context:      context.Background(),
		ExternalURL:  &url.URL{},
		QueryFunc:    rules.EngineQueryFunc(s.Engine(), s.Storage()),
		NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
		AppendableV2: s.Storage(),
		Queryable:    s.Storage(),
		Parser:       parser.NewParser(parser.Options{}),
	})
	found, errs := m.LoadGroups(defaultInterval, labels.EmptyLabels(), "", nil, false, files...)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	r := &Rules{server: s}
	for _, g := range found {
		r.groups = append(r.groups, g)
		for _, a := range g.AlertingRules() {
			a.SetRestored(true)
		}
	}
	slices.SortFunc(r.groups, func(a, b *rules.Group) int {
		return strings.Compare(rules.GroupKey(a.File(), a.Name()), rules.GroupKey(b.File(), b.Name()))
	})
	return r, nil
}

// Eval evaluates every group once at the given time, whatever its interval, in
// the order of file and group names. Results and ALERTS are recorded at that
// time, which must move forward. The error names each rule that failed; the
// others were evaluated. It is not safe for concurrent use.
func (r *Rules) Eval(at time.Time) error {
	if !at.After(r.last) {
		return fmt.Errorf("evaluate rules at %s: %w: they were last evaluated at %s", at, prom.ErrTime, r.last)
	}
	return r.server.Evaluate(at, func() error {
		r.last = at
		var errs []error
		for _, g := range r.groups {
			g.Eval(context.Background(), at)
			errs = append(errs, failures(g)...)
		}
		return errors.Join(errs...)
	})
}

func failures(g *rules.Group) (errs []error) {
	for _, rule := range g.Rules() {
		if err := rule.LastError(); err != nil {
			errs = append(errs, fmt.Errorf("rule %s of group %s in %s: %w", rule.Name(), g.Name(), g.File(), err))
		}
	}
	return errs
}

// Alerts are the alerts active after the last Eval, sorted by name and labels.
func (r *Rules) Alerts() []Alert {
	var active []*rules.Alert
	for _, g := range r.groups {
		for _, rule := range g.AlertingRules() {
			active = append(active, rule.ActiveAlerts()...)
		}
	}
	slices.SortFunc(active, func(a, b *rules.Alert) int { return labels.Compare(a.Labels, b.Labels) })
	out := make([]Alert, len(active))
	for i, a := range active {
		out[i] = Alert{
			Name: a.Labels.Get(labels.AlertName), State: a.State.String(),
			Labels: a.Labels.Map(), Annotations: a.Annotations.Map(),
			Value: a.Value, ActiveAt: a.ActiveAt,
		}
	}
	return out
}
