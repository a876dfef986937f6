package prom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// maxQuerySamples is how many samples one query may hold in memory: the
// Prometheus server's default.
const maxQuerySamples = 50_000_000

// Server is an embedded Prometheus. Its methods are safe for concurrent use.
type Server struct {
	o       Options
	tempDir string
	db      *tsdb.DB
	engine  *promql.Engine
	parser  parser.Parser
	handler http.Handler

	// life ends running queries when the server closes.
	life context.Context
	end  context.CancelFunc
	// open is held for reading while the TSDB is in use, so that Close never
	// unmaps chunks under a query.
	open   sync.RWMutex
	closed bool

	// newest is the latest scrape's timestamp in milliseconds, or noScrape.
	newest atomic.Int64

	mu        sync.Mutex
	targets   map[string]*target
	families  map[string]family
	listeners []*http.Server
	serving   sync.WaitGroup
}

// noScrape is Server.newest before the first scrape.
const noScrape = math.MinInt64

// Open starts an embedded Prometheus, reading back what o.Dir holds from an
// earlier run. Close releases it.
func Open(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open embedded Prometheus: %w", err)
	}
	s := &Server{
		o:        o,
		parser:   parser.NewParser(parser.Options{}),
		targets:  map[string]*target{},
		families: map[string]family{},
	}
	if err := s.openStorage(); err != nil {
		return nil, fmt.Errorf("open embedded Prometheus: %w", err)
	}
	s.newest.Store(noScrape)
	if t := s.db.Head().MaxTime(); s.db.Head().NumSeries() > 0 {
		s.newest.Store(t)
	}
	s.engine = promql.NewEngine(engineOptions(o, s.parser))
	s.life, s.end = context.WithCancel(context.Background())
	s.handler = s.routes()
	return s, nil
}

// openStorage opens the TSDB in the configured or a temporary directory.
func (s *Server) openStorage() error {
	dir := s.o.Dir
	if dir == "" {
		temp, err := os.MkdirTemp("", "kvtuner-prometheus-")
		if err != nil {
			return fmt.Errorf("create a temporary directory: %w", err)
		}
		s.tempDir, dir = temp, temp
	}
	db, err := tsdb.Open(dir, s.o.Logger, s.o.Registerer, storageOptions(s.o), nil)
	if err != nil {
		return errors.Join(fmt.Errorf("open the TSDB in %s: %w", dir, err), s.removeTemp())
	}
	s.db = db
	return nil
}

// storageOptions sizes the TSDB for tens of targets rather than the millions of
// series it is made for, so that opening one costs milliseconds.
func storageOptions(o Options) *tsdb.Options {
	t := tsdb.DefaultOptions()
	t.RetentionDuration = o.Retention.Milliseconds()
	t.OutOfOrderTimeWindow = (o.Lateness + maxAhead).Milliseconds()
	t.StripeSize = 256
	t.HeadChunksWriteBufferSize = 64 << 10
	t.WALSegmentSize = 16 << 20
	if o.Dir == "" {
		t.WALSegmentSize = -1
	}
	return t
}

func engineOptions(o Options, p parser.Parser) promql.EngineOpts {
	return promql.EngineOpts{
		Logger:                   o.Logger,
		Reg:                      o.Registerer,
		MaxSamples:               maxQuerySamples,
		Timeout:                  o.QueryTimeout,
		LookbackDelta:            o.Lookback,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		Parser:                   p,
	}
}

// Newest is the timestamp of the latest scrape of any target; the zero time
// before the first.
func (s *Server) Newest() time.Time {
	ms := s.newest.Load()
	if ms == noScrape {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// now is the evaluation time of a query that names none.
func (s *Server) now() time.Time {
	if s.o.Now != nil {
		return s.o.Now()
	}
	return s.Newest()
}

// use holds the TSDB open until the returned function is called.
func (s *Server) use() (release func(), err error) {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return nil, ErrClosed
	}
	return s.open.RUnlock, nil
}

// Close stops listening, cancels running queries, waits for them, and closes
// the TSDB. A temporary directory is removed. Closing again does nothing.
func (s *Server) Close() error {
	s.end()
	err := s.stopListening()

	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(err, s.db.Close(), s.removeTemp())
}

func (s *Server) removeTemp() error {
	if s.tempDir == "" {
		return nil
	}
	if err := os.RemoveAll(s.tempDir); err != nil {
		return fmt.Errorf("remove the temporary directory: %w", err)
	}
	return nil
}
