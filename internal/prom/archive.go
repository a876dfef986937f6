package prom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// ErrArchive: the directory cannot be read as an archive; the error says why.
var ErrArchive = errors.New("not a TSDB that can be read")

// Archive answers instant queries from the directory of a TSDB: a snapshot, or the
// data of a Prometheus that is stopped. It changes nothing there.
type Archive struct {
	db      *tsdb.DBReadOnly
	querier storage.Querier
	engine  *promql.Engine
	parser  parser.Parser
	sandbox string
}

// OpenArchive opens the directory. Errors wrap ErrArchive.
func OpenArchive(dir string) (*Archive, error) {
	blocks, logged, err := checkArchive(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", dir, ErrArchive, err)
	}
	a := &Archive{parser: parser.NewParser(parser.Options{})}
	if err := a.open(dir, blocks, logged); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w: %w", dir, ErrArchive, err), a.Close())
	}
	o, err := Options{}.withDefaults()
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.engine = promql.NewEngine(engineOptions(o, a.parser))
	return a, nil
}

// checkArchive tells what the directory is not, how many blocks it has, and whether
// it has a log besides.
func checkArchive(dir string) (n int, logged bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, false, err
	}
	if !info.IsDir() {
		return 0, false, errors.New("it is no directory; give the directory of a snapshot")
	}
	if err := unlocked(filepath.Join(dir, "lock")); err != nil {
		return 0, false, err
	}
	blocks, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil {
		return 0, false, err
	}
	log, err := filepath.Glob(filepath.Join(dir, "wal", "*"))
	if err != nil {
		return 0, false, err
	}
	if len(blocks) == 0 && len(log) == 0 {
		return 0, false, errors.New("it holds neither blocks nor a write-ahead log; a snapshot is data/snapshots/<name>")
	}
	return len(blocks), len(log) > 0, nil
}

// unlocked refuses the directory of a Prometheus that runs: what it is about to
// write would be half read.
func unlocked(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("a running Prometheus holds %s: ask its API instead, or take a snapshot of it (POST /api/v1/admin/tsdb/snapshot)", path)
	}
	return nil
}

func (a *Archive) open(dir string, blocks int, logged bool) (err error) {
	if a.sandbox, err = os.MkdirTemp("", "kvtuner-archive-"); err != nil {
		return err
	}
	if a.db, err = tsdb.OpenDBReadOnly(dir, a.sandbox, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	latest, err := a.lastOf(blocks)
	if err != nil {
		return err
	}
	if logged { // without one, it must not be asked for
		latest = math.MaxInt64
	}
	a.querier, err = a.db.Querier(math.MinInt64, latest)
	if errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%w: set TMPDIR to a directory on the same file system, or take a snapshot", err)
	}
	return err
}

// lastOf so many blocks is the last instant that they cover.
func (a *Archive) lastOf(n int) (int64, error) {
	blocks, err := a.db.Blocks()
	if err != nil {
		return 0, err
	}
	if len(blocks) < n {
		return 0, fmt.Errorf("%d of its %d blocks cannot be read: take another snapshot", n-len(blocks), n)
	}
	last := int64(math.MinInt64)
	for _, b := range blocks {
		last = max(last, b.Meta().MaxTime-1)
	}
	return last, nil
}

// Close releases the directory.
func (a *Archive) Close() error {
	var errs []error
	if a.querier != nil {
		errs = append(errs, a.querier.Close())
	}
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(a.sandbox))...)
}

// Query evaluates an expression at one time, as a client of a server would.
func (a *Archive) Query(ctx context.Context, q string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, promv1.Infos, error) {
	query, err := a.engine.NewInstantQuery(ctx, always{q: a.querier}, promql.NewPrometheusQueryOpts(false, 0, nil), q, at)
	if err != nil {
		return nil, nil, nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, nil, nil, result.Err
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("query %s: %w", q, err)
	}
	return samples(matrix), nil, nil, nil
}

// samples turns a matrix into the form that clients read; histograms are left out.
func samples(matrix promql.Matrix) model.Matrix {
	out := model.Matrix{}
	for _, s := range matrix {
		row := &model.SampleStream{Metric: model.Metric{}}
		s.Metric.Range(func(l labels.Label) { row.Metric[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		for _, p := range s.Floats {
			row.Values = append(row.Values, model.SamplePair{Timestamp: model.Time(p.T), Value: model.SampleValue(p.F)})
		}
		if len(row.Values) > 0 {
			out = append(out, row)
		}
	}
	return out
}

// Span is the times of the first and the last sample of the series that a selector
// picks; ok is false if it picks none.
func (a *Archive) Span(ctx context.Context, selector string) (from, to time.Time, ok bool, err error) {
	matchers, err := a.parser.ParseMetricSelector(selector)
	if err != nil {
		return from, to, false, fmt.Errorf("selector %s: %w", selector, err)
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	set := a.querier.Select(ctx, false, nil, matchers...)
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		for it.Next() != chunkenc.ValNone {
			first, last = min(first, it.AtT()), max(last, it.AtT())
		}
		if err := it.Err(); err != nil {
			return from, to, false, err
		}
	}
	if err := set.Err(); err != nil || last < first {
		return from, to, false, err
	}
	return time.UnixMilli(first).UTC(), time.UnixMilli(last).UTC(), true, nil
}

// always is one querier for all queries: opening one reads the log anew.
type always struct{ q storage.Querier }

// Querier implements storage.Queryable.
func (a always) Querier(int64, int64) (storage.Querier, error) { return unclosed{a.q}, nil }

// unclosed stays open for the next query.
type unclosed struct{ storage.Querier }

// Close implements storage.Querier.
func (unclosed) Close() error { return nil }
