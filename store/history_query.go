package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Filter selects decisions. The zero Filter selects all, oldest first.
type Filter struct {
	// Pool to look at; empty for all of them.
	Pool string
	// Kinds to select; none for all.
	Kinds []Kind
	// Since is the earliest time (inclusive) and Until the latest (exclusive);
	// zero is no limit.
	Since, Until time.Time
	// Limit is the most decisions to return, the first in order; 0 is no limit.
	Limit int
	// NewestFirst turns the order round.
	NewestFirst bool
}

// Query returns the decisions that f selects, by time, then pool and ID.
func (h *History) Query(f Filter) ([]Decision, error) {
	if f.Limit < 0 {
		return nil, fmt.Errorf("query history: %w", refuse("limit", f.Limit, "0 for no limit, or more"))
	}
	var found []Decision
	err := h.guard("query", func() error {
		return h.db.View(func(tx *bbolt.Tx) (err error) {
			found, err = f.collect(tx)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (f Filter) collect(tx *bbolt.Tx) ([]Decision, error) {
	var found []Decision
	for name, pool := range pools(tx) {
		if f.Pool != "" && f.Pool != name {
			continue
		}
		part, err := f.collectPool(pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
		found = append(found, part...)
	}
	slices.SortFunc(found, f.compare)
	if f.Limit > 0 && len(found) > f.Limit {
		found = found[:f.Limit]
	}
	return found, nil
}

func (f Filter) collectPool(pool *poolHistory) ([]Decision, error) {
	var found []Decision
	for d, err := range pool.scan(f) {
		if err != nil {
			return nil, err
		}
		if len(f.Kinds) > 0 && !slices.Contains(f.Kinds, d.Kind) {
			continue
		}
		found = append(found, d)
		if len(found) == f.Limit {
			return found, nil
		}
	}
	return found, nil
}

func (f Filter) compare(a, b Decision) int {
	order := cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.ID, b.ID))
	if f.NewestFirst {
		return -order
	}
	return order
}

// Get returns the decision of this ID, or of the only ID that starts so; an
// empty pool looks in all of them. It returns ErrNotFound, or ErrInvalid if the
// start fits several.
func (h *History) Get(pool, id string) (Decision, error) {
	if id == "" {
		return Decision{}, fmt.Errorf("read history: %w", refuse("id", id, "the ID of a decision, or its start"))
	}
	var found Decision
	err := h.guard("read", func() error {
		return h.db.View(func(tx *bbolt.Tx) (err error) {
			found, err = get(tx, pool, id)
			return err
		})
	})
	return found, err
}

func get(tx *bbolt.Tx, name, id string) (Decision, error) {
	var fits []match
	for poolName, pool := range pools(tx) {
		if name == "" || name == poolName {
			fits = append(fits, pool.matches(id)...)
		}
	}
	switch len(fits) {
	case 0:
		if name == "" {
			return Decision{}, fmt.Errorf("decision %q: %w", id, ErrNotFound)
		}
		return Decision{}, fmt.Errorf("decision %q of pool %q: %w", id, name, ErrNotFound)
	case 1:
		return decodeDecision(fits[0].key, fits[0].pool.byTime.Get(fits[0].key))
	default:
		return Decision{}, refuse("id", id, "more of it, or a pool: it fits "+list(fits))
	}
}

// match is one decision whose ID starts as asked.
type match struct {
	pool *poolHistory
	key  []byte
}

// matches returns the decision of this very ID, or else those it starts.
func (p *poolHistory) matches(id string) []match {
	if key := p.byID.Get([]byte(id)); key != nil {
		return []match{{p, key}}
	}
	var fits []match
	c := p.byID.Cursor()
	for k, key := c.Seek([]byte(id)); k != nil && bytes.HasPrefix(k, []byte(id)); k, key = c.Next() {
		fits = append(fits, match{p, key})
	}
	return fits
}

// list names the first few.
func list(fits []match) string {
	const shown = 5
	var names []string
	for _, fit := range fits[:min(shown, len(fits))] {
		names = append(names, string(fit.key[timeKeyBytes:]))
	}
	if more := len(fits) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// Pools returns the names of the pools that have, or had, decisions, sorted.
func (h *History) Pools() ([]string, error) {
	var names []string
	err := h.guard("list the pools of", func() error {
		return h.db.View(func(tx *bbolt.Tx) error {
			for name := range pools(tx) {
				names = append(names, name)
			}
			return nil
		})
	})
	return names, err
}
