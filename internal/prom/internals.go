package prom

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// Engine evaluates PromQL. Use it inside Evaluate only.
func (s *Server) Engine() *promql.Engine { return s.engine }

// Storage is the TSDB. Use it inside Evaluate only.
func (s *Server) Storage() storage.Storage { return s.db }

// Evaluate runs f, which may read and append samples at the given time, and
// keeps the server from closing meanwhile. The time must be one that a scrape
// of a new target could have; errors wrap ErrTime or ErrClosed, or are f's.
func (s *Server) Evaluate(at time.Time, f func() error) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	ms, err := s.accept(noScrape, at)
	if err != nil {
		return fmt.Errorf("evaluate at %s: %w", at.UTC().Format(time.RFC3339Nano), err)
	}
	s.advance(ms)
	return f()
}
