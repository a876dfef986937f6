package llmd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
)

func response(headers map[string]string, end bool) *requestcontrol.Response {
	return &requestcontrol.Response{Headers: headers, EndOfStream: end, Usage: usage(1000, 7)}
}

// BenchmarkPreRequest is all that the plugin adds to a request before it is
// sent, from 8 requests at a time on each core. Each time the body is edited
// anew, and forgotten.
func BenchmarkPreRequest(b *testing.B) {
	for name, tiers := range map[string]map[string]int{"load": external, "recompute": little} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b, threshold)
			f.now = time.Now
			results := make([]*scheduling.SchedulingResult, 64)
			for i := range results {
				results[i] = chosen(engine(fmt.Sprint("vllm-", i), &datalayer.Metrics{WaitingQueueSize: i % 8, UpdateTime: time.Now()}, tiers))
			}
			over := &requestcontrol.Response{EndOfStream: true}
			var all latencies
			b.SetParallelism(8)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				request, took := completion(b, true), make([]time.Duration, 0, 1<<14)
				for i := 0; pb.Next(); i++ {
					start := time.Now()
					f.PreRequest(context.Background(), request, results[i%len(results)])
					if elapsed := time.Since(start); len(took) < cap(took) {
						took = append(took, elapsed)
					}
					delete(request.Body.Payload.(requesthandling.PayloadMap), "kv_transfer_params")
					f.ResponseBody(context.Background(), request, over, nil)
				}
				all.add(took)
			})
			all.report(b)
		})
	}
}

// latencies of single calls.
type latencies struct {
	mu   sync.Mutex
	took []time.Duration
}

func (l *latencies) add(took []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took...)
}

func (l *latencies) report(b *testing.B) {
	slices.Sort(l.took)
	b.ReportMetric(float64(l.took[len(l.took)/2]), "p50-ns")
	b.ReportMetric(float64(l.took[len(l.took)*99/100]), "p99-ns")
}

// BenchmarkResponse is a streamed response of three pieces.
func BenchmarkResponse(b *testing.B) {
	f := newFixture(b, threshold)
	f.now = time.Now
	request := completion(b, true)
	result := chosen(engine("a", nil, little))
	piece, last := response(stream, false), response(stream, true)
	b.ReportAllocs()
	for b.Loop() {
		f.PreRequest(context.Background(), request, result)
		f.ResponseHeader(context.Background(), request, piece, nil)
		f.ResponseBody(context.Background(), request, piece, nil)
		f.ResponseBody(context.Background(), request, piece, nil)
		f.ResponseBody(context.Background(), request, last, nil)
	}
}
