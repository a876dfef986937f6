package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// Statuses is where the status of a pool is kept; configmap.Store is one.
type Statuses interface {
	SaveStatus(ctx context.Context, text string) error
}

// Pool is one loop; tuner.Tuner is one.
type Pool interface {
	Status() tuner.Status
}

// Reporter keeps the readable status of a pool up to date. It writes only what has
// changed, and never the figures that change with every sample.
type Reporter struct {
	Pool     Pool
	Statuses Statuses
	Identity string
	Logger   *slog.Logger

	written    string
	conditions map[string]condition
}

// condition is one of the questions that a status answers, as Kubernetes objects
// do.
type condition struct {
	Type    string    `yaml:"type"`
	Status  string    `yaml:"status"`
	Since   time.Time `yaml:"since"`
	Message string    `yaml:"message,omitempty"`
}

type status struct {
	Pool         string       `yaml:"pool"`
	Mode         tuner.Mode   `yaml:"mode"`
	Tuner        string       `yaml:"tuner"`
	Doing        string       `yaml:"doing"`
	Incumbent    string       `yaml:"incumbent,omitempty"`
	Revision     int64        `yaml:"revision,omitempty"`
	Trial        *trialStatus `yaml:"trial,omitempty"`
	Conditions   []condition  `yaml:"conditions"`
	LastDecision *decision    `yaml:"lastDecision,omitempty"`
}

type trialStatus struct {
	ID        string `yaml:"id"`
	Candidate string `yaml:"candidate"`
	Why       string `yaml:"why"`
}

type decision struct {
	Time   time.Time `yaml:"time"`
	Kind   string    `yaml:"kind"`
	Reason string    `yaml:"reason"`
}

// Run reports at the pace of a ticker's channel until ctx ends. That a status
// cannot be written is logged, and holds nothing up.
func (r *Reporter) Run(ctx context.Context, ticks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			if err := r.Report(ctx); err != nil && ctx.Err() == nil {
				r.Logger.Debug("the status in the ConfigMap is out of date", "err", err)
			}
		}
	}
}

// Report writes the status if it has changed.
func (r *Reporter) Report(ctx context.Context) error {
	s := r.Pool.Status()
	if s.At.IsZero() {
		return nil
	}
	text, err := r.format(s)
	if err != nil || text == r.written {
		return err
	}
	err = r.Statuses.SaveStatus(ctx, text)
	if errors.Is(err, store.ErrNotFound) {
		return nil // observe mode: nobody has made the ConfigMap
	}
	if err == nil {
		r.written = text
	}
	return err
}

func (r *Reporter) format(s tuner.Status) (string, error) {
	out := status{
		Pool: s.Pool, Mode: s.Mode, Tuner: r.Identity, Doing: s.Doing, Revision: s.Revision,
		Conditions: []condition{
			r.condition(s.At, "Ready", s.NotReady() == "", s.NotReady()),
			r.condition(s.At, "Paused", s.Paused != nil, paused(s)),
		},
	}
	if s.Incumbent != nil {
		out.Incumbent = s.Incumbent.String()
	}
	if t := s.Trial; t != nil {
		out.Trial = &trialStatus{ID: t.ID, Candidate: t.Candidate.String(), Why: t.Why}
	}
	if len(s.Decisions) > 0 {
		d := s.Decisions[0]
		out.LastDecision = &decision{Time: d.Time.UTC(), Kind: string(d.Kind), Reason: d.Reason}
	}
	raw, err := yaml.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("writing the status: %w", err)
	}
	return "# Written by kvtuner, for people. Nothing reads it.\n" + string(raw), nil
}

func paused(s tuner.Status) string {
	if s.Paused == nil {
		return ""
	}
	return s.Paused.String()
}

// condition remembers since when it is so.
func (r *Reporter) condition(at time.Time, kind string, holds bool, message string) condition {
	c := condition{Type: kind, Status: "False", Since: at.UTC().Truncate(time.Second), Message: message}
	if holds {
		c.Status = "True"
	}
	if before, found := r.conditions[kind]; found && before.Status == c.Status {
		c.Since = before.Since
	}
	if r.conditions == nil {
		r.conditions = map[string]condition{}
	}
	r.conditions[kind] = c
	return c
}
