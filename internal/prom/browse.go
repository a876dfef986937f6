package prom

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// engineVersion is the Prometheus release whose module is embedded: module
// v0.316.0 is release 3.16.0.
const engineVersion = "3.16.0"

// selection is what a request for names rather than samples asks about.
type selection struct {
	sets  [][]*labels.Matcher
	limit int
	q     storage.Querier
	// mint and maxt bound the time in milliseconds.
	mint, maxt int64
}

// selection parses a request and opens the TSDB for it. Unset times are open.
func (s *Server) selection(r *http.Request) (sel selection, err error) {
	if sel.limit, err = limitParam(r); err != nil {
		return sel, err
	}
	start, err := timeParam(r, "start", time.UnixMilli(math.MinInt64))
	if err != nil {
		return sel, err
	}
	end, err := timeParam(r, "end", time.UnixMilli(math.MaxInt64))
	if err != nil {
		return sel, err
	}
	sel.mint, sel.maxt = start.UnixMilli(), end.UnixMilli()
	if sel.sets, err = s.matchParams(r); err != nil {
		return sel, err
	}
	sel.q, err = s.db.Querier(sel.mint, sel.maxt)
	return sel, err
}

// series lists the label sets that any of the selectors match.
func (s *Server) series(r *http.Request) (reply, error) {
	if len(r.Form["match[]"]) == 0 {
		return reply{}, badData("no match[] parameter provided")
	}
	sel, err := s.selection(r)
	if err != nil {
		return reply{}, err
	}
	hints := &storage.SelectHints{Start: sel.mint, End: sel.maxt, Func: "series"}
	var sets []storage.SeriesSet
	for _, matchers := range sel.sets {
		sets = append(sets, sel.q.Select(r.Context(), true, hints, matchers...))
	}
	merged := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	found := []labels.Labels{}
	for merged.Next() {
		found = append(found, merged.At().Labels())
	}
	if err := merged.Err(); err != nil {
		sel.q.Close()
		return reply{}, err
	}
	return listed(sel, found, merged.Warnings()), nil
}

// lister asks a querier for names that one selector matches.
type lister func(ctx context.Context, q storage.Querier, set []*labels.Matcher) ([]string, annotations.Annotations, error)

// labelNames lists the label names of the matching series.
func (s *Server) labelNames(r *http.Request) (reply, error) {
	return s.list(r, func(ctx context.Context, q storage.Querier, set []*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelNames(ctx, nil, set...)
	})
}

// labelValues lists the values of one label among the matching series.
func (s *Server) labelValues(r *http.Request) (reply, error) {
	name := r.PathValue("name")
	if strings.HasPrefix(name, "U__") {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	if !model.UTF8Validation.IsValidLabelName(name) {
		return reply{}, badData("invalid label name: %q", name)
	}
	return s.list(r, func(ctx context.Context, q storage.Querier, set []*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelValues(ctx, name, nil, set...)
	})
}

// list collects names over all selectors of a request, sorted and without
// duplicates. Without a selector it asks about all series.
func (s *Server) list(r *http.Request, names lister) (reply, error) {
	sel, err := s.selection(r)
	if err != nil {
		return reply{}, err
	}
	sets := sel.sets
	if len(sets) == 0 {
		sets = [][]*labels.Matcher{nil}
	}
	found := []string{}
	var notes annotations.Annotations
	for _, set := range sets {
		some, warnings, err := names(r.Context(), sel.q, set)
		if err != nil {
			sel.q.Close()
			return reply{}, err
		}
		found = append(found, some...)
		notes = notes.Merge(warnings)
	}
	slices.Sort(found)
	return listed(sel, slices.Compact(found), notes), nil
}

// listed is the reply for a list, cut to the limit. The list points into the
// TSDB until it is encoded.
func listed[T any](sel selection, found []T, notes annotations.Annotations) reply {
	if sel.limit > 0 && len(found) > sel.limit {
		found = found[:sel.limit]
		notes.Add(errTruncated)
	}
	return reply{data: found, notes: notes, release: func() { sel.q.Close() }}
}

// family is what was exposed about a metric family.
type family struct {
	Type string `json:"type"`
	Help string `json:"help"`
	Unit string `json:"unit"`
}

// learn remembers the type and help text of a family.
func (s *Server) learn(f *dto.MetricFamily) {
	kind := strings.ToLower(f.GetType().String())
	switch f.GetType() {
	case dto.MetricType_UNTYPED:
		kind = string(model.MetricTypeUnknown)
	case dto.MetricType_GAUGE_HISTOGRAM:
		kind = string(model.MetricTypeGaugeHistogram)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.families[f.GetName()] = family{Type: kind, Help: f.GetHelp(), Unit: f.GetUnit()}
}

// metadata lists the families exposed since the server opened.
func (s *Server) metadata(r *http.Request) (reply, error) {
	limit, err := limitParam(r)
	if err != nil {
		return reply{}, err
	}
	only := r.Form.Get("metric")
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]family{}
	for name, f := range s.families {
		if only == "" || only == name {
			found[name] = []family{f}
		}
	}
	if limit > 0 {
		trim(found, limit)
	}
	return reply{data: found}, nil
}

// trim keeps the first names in alphabetical order.
func trim(m map[string][]family, limit int) {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[min(limit, len(names)):] {
		delete(m, name)
	}
}

// buildInfo tells clients which version's API they talk to.
func (s *Server) buildInfo(*http.Request) (reply, error) {
	return reply{data: map[string]string{
		"version": engineVersion, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
	}}, nil
}
