package prom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// series is one time series of a target, as the TSDB knows it.
type series struct {
	key    string
	ref    storage.SeriesRef
	labels labels.Labels
	// seen is the generation of the target's last scrape that exposed it.
	seen uint64
}

// target remembers one scrape target between its scrapes: which label set and
// TSDB reference each exposed sample has, and which series are alive.
type target struct {
	name   string
	labels labels.Labels
	// byLength are the labels' names, shortest first: the order in which
	// Prometheus renames exposed labels that collide with them.
	byLength []string

	mu sync.Mutex
	// last is the timestamp of the last scrape in milliseconds, or noScrape.
	last       int64
	generation uint64
	series     map[string]*series
	live       []*series
	reports    []*series
}

// target finds or creates the target with these labels.
func (s *Server) target(set map[string]string) (*target, error) {
	names := slices.Sorted(maps.Keys(set))
	var key strings.Builder
	for _, name := range names {
		if set[name] == "" {
			continue
		}
		key.WriteString(name)
		key.WriteByte(0xff)
		key.WriteString(set[name])
		key.WriteByte(0xff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.targets[key.String()]; ok {
		return t, nil
	}
	t, err := newTarget(labels.FromMap(set).WithoutEmpty())
	if err != nil {
		return nil, err
	}
	s.targets[key.String()] = t
	return t, nil
}

func newTarget(set labels.Labels) (*target, error) {
	if set.IsEmpty() {
		return nil, fmt.Errorf("%w: at least one label with a value is needed, such as instance", ErrTarget)
	}
	t := &target{name: set.String(), labels: set, last: noScrape, series: map[string]*series{}}
	err := set.Validate(func(l labels.Label) error {
		if l.Name == model.MetricNameLabel || !model.UTF8Validation.IsValidLabelName(l.Name) {
			return fmt.Errorf("%w: %q cannot name a target label", ErrTarget, l.Name)
		}
		if !model.LabelValue(l.Value).IsValid() {
			return fmt.Errorf("%w: label %s has the value %q, which is not UTF-8", ErrTarget, l.Name, l.Value)
		}
		t.byLength = append(t.byLength, l.Name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(t.byLength, func(a, b string) int { return len(a) - len(b) })
	for _, name := range reportNames {
		t.reports = append(t.reports, &series{labels: t.attach(labels.FromStrings(model.MetricNameLabel, name))})
	}
	return t, nil
}

// attach adds the target's labels to exposed ones. As with Prometheus'
// honor_labels: false, the target wins, and an exposed label of the same name
// is kept under the prefix "exported_", repeated until the name is free.
func (t *target) attach(exposed labels.Labels) labels.Labels {
	b := labels.NewBuilder(exposed)
	t.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	for _, name := range t.byLength {
		value := exposed.Get(name)
		if value == "" {
			continue
		}
		name = model.ExportedLabelPrefix + name
		for b.Get(name) != "" {
			name = model.ExportedLabelPrefix + name
		}
		b.Set(name, value)
	}
	return b.Labels()
}
