package prom

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxPoints bounds the steps of a range query, as in Prometheus.
const maxPoints = 11_000

// queryData is the data of a query's reply.
type queryData struct {
	ResultType parser.ValueType `json:"resultType"`
	Result     parser.Value     `json:"result"`
}

// query evaluates an expression at one time.
func (s *Server) query(r *http.Request) (reply, error) {
	at, err := timeParam(r, "time", s.now())
	if err != nil {
		return reply{}, err
	}
	return s.run(r, func(ctx context.Context, expr string, o promql.QueryOpts) (promql.Query, error) {
		return s.engine.NewInstantQuery(ctx, s.db, o, expr, at)
	})
}

// queryRange evaluates an expression at every step of a range of time.
func (s *Server) queryRange(r *http.Request) (reply, error) {
	span, err := rangeParams(r)
	if err != nil {
		return reply{}, err
	}
	return s.run(r, func(ctx context.Context, expr string, o promql.QueryOpts) (promql.Query, error) {
		return s.engine.NewRangeQuery(ctx, s.db, o, expr, span.start, span.end, span.step)
	})
}

type span struct {
	start, end time.Time
	step       time.Duration
}

func rangeParams(r *http.Request) (p span, err error) {
	if p.start, err = requiredTime(r, "start"); err != nil {
		return span{}, err
	}
	if p.end, err = requiredTime(r, "end"); err != nil {
		return span{}, err
	}
	if p.end.Before(p.start) {
		return span{}, badData(`invalid parameter "end": end timestamp must not be before start time`)
	}
	if p.step, err = durationParam(r, "step"); err != nil {
		return span{}, err
	}
	switch {
	case p.step <= 0:
		return span{}, badData(`invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer`)
	case p.end.Sub(p.start)/p.step > maxPoints:
		return span{}, badData("exceeded maximum resolution of %d points per timeseries. Try decreasing the query resolution (?step=XX)", maxPoints)
	}
	return p, nil
}

// prepare builds a query of the engine.
type prepare func(context.Context, string, promql.QueryOpts) (promql.Query, error)

// run prepares and executes a query under the request's limits.
func (s *Server) run(r *http.Request, build prepare) (reply, error) {
	o, err := limitParams(r)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()

	expr := r.Form.Get("query")
	q, err := build(ctx, expr, promql.NewPrometheusQueryOpts(false, o.lookback, nil))
	if err != nil {
		return reply{}, badData(`invalid parameter "query": %w`, err)
	}
	result := q.Exec(ctx)
	if result.Err != nil {
		q.Close()
		return reply{}, result.Err
	}
	answer := reply{query: expr, notes: result.Warnings, release: q.Close}
	value, cut := truncate(result.Value, o.limit)
	if cut {
		answer.notes.Add(errTruncated)
	}
	answer.data = queryData{ResultType: value.Type(), Result: value}
	return answer, nil
}

// truncate cuts a result down to the limit; 0 is no limit.
func truncate(v parser.Value, limit int) (_ parser.Value, cut bool) {
	if limit == 0 {
		return v, false
	}
	switch v := v.(type) {
	case promql.Vector:
		return v[:min(limit, len(v))], len(v) > limit
	case promql.Matrix:
		return v[:min(limit, len(v))], len(v) > limit
	}
	return v, false
}
