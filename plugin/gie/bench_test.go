package gie

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
)

func response(headers map[string]string, end bool) *requestcontrol.Response {
	return &requestcontrol.Response{Headers: headers, EndOfStream: end, Usage: usage(1000, 7)}
}

// BenchmarkPreRequest is all that the plugin adds to a request before it is
// sent, and the median and 99th percentile of it. The body is edited anew each
// time.
func BenchmarkPreRequest(b *testing.B) {
	for name, tiers := range map[string]map[string]int{"load": external, "recompute": little} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b, threshold)
			f.now = time.Now
			request := completion(b, true)
			body := request.Body.Payload.(scheduling.PayloadMap)
			results := make([]*scheduling.SchedulingResult, 64)
			for i := range results {
				results[i] = chosen(engine(fmt.Sprint("vllm-", i), &datalayer.Metrics{WaitingQueueSize: i % 8, UpdateTime: time.Now()}, tiers))
			}
			took := make([]time.Duration, 0, 1<<16)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				f.PreRequest(context.Background(), request, results[i%len(results)])
				if elapsed := time.Since(start); len(took) < cap(took) {
					took = append(took, elapsed)
				}
				delete(body, fieldParams)
				f.inFlight.remove(request)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
		})
	}
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
