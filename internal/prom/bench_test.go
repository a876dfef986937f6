package prom

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
)

// engine is a registry about the size of a vLLM engine's: 399 series.
func engine() (reg *prometheus.Registry, step func()) {
	reg = prometheus.NewRegistry()
	latency := []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	var histograms []prometheus.Observer
	for i := range 14 {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: fmt.Sprintf("vllm:h%02d_seconds", i), Buckets: latency}, []string{"model_name", "engine"})
		reg.MustRegister(h)
		histograms = append(histograms, h.WithLabelValues("qwen", "0"))
	}
	var counters []prometheus.Counter
	for i := range 49 {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: fmt.Sprintf("vllm:c%02d_total", i)}, []string{"model_name", "engine"})
		reg.MustRegister(c)
		counters = append(counters, c.WithLabelValues("qwen", "0"))
	}
	return reg, func() {
		for i := range 20 {
			histograms[i%len(histograms)].Observe(float64(i) / 7)
		}
		for i, c := range counters {
			c.Add(float64(i))
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, gathered := range []bool{false, true} {
		b.Run(fmt.Sprintf("gathered=%v", gathered), func(b *testing.B) {
			reg, step := engine()
			s := open(b, Options{})
			var g prometheus.Gatherer = reg
			if gathered {
				families, err := reg.Gather()
				must(b, err)
				g = exposition(families)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				step()
				must(b, s.Scrape(at(n), pod("a"), g))
			}
		})
	}
}

// fleet is 20 pods with an hour of scrapes.
func fleet(b *testing.B) *Server {
	s := open(b, Options{})
	for p := range 20 {
		reg, step := engine()
		for n := range 240 {
			step()
			must(b, s.Scrape(at(n), pod(fmt.Sprint("pod-", p)), reg))
		}
	}
	return s
}

func BenchmarkQuery(b *testing.B) {
	s := fleet(b)
	url, err := s.Listen("")
	must(b, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	socket, err := api.NewClient(api.Config{Address: url, RoundTripper: transport})
	must(b, err)
	ctx, end := context.Background(), at(239)
	apis := []struct {
		name string
		api  v1.API
	}{{"in-process", client(b, s)}, {"socket", v1.NewAPI(socket)}}
	for _, expr := range []struct{ name, text string }{
		{"one", `1`},
		{"mean", `sum(rate({__name__="vllm:h00_seconds_sum"}[2m])) / sum(rate({__name__="vllm:h00_seconds_count"}[2m]))`},
		{"quantile", `histogram_quantile(0.99, sum by(le) (rate({__name__="vllm:h00_seconds_bucket"}[2m])))`},
		{"series=20", `rate({__name__="vllm:h00_seconds_sum"}[2m])`},
		{"matrix=20x8", `{__name__="vllm:h00_seconds_sum"}[2m]`},
	} {
		for _, a := range apis {
			b.Run(expr.name+"/"+a.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _, _, err := a.api.Query(ctx, expr.text, end)
					must(b, err)
				}
			})
		}
	}
	for _, expr := range []struct{ name, text string }{
		{"range=1x720", `histogram_quantile(0.99, sum by(le) (rate({__name__="vllm:h00_seconds_bucket"}[2m])))`},
		{"range=20x720", `rate({__name__="vllm:h00_seconds_sum"}[2m])`},
	} {
		b.Run(expr.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _, err := apis[0].api.QueryRange(ctx, expr.text, v1.Range{Start: end.Add(-719 * 5e9), End: end, Step: 5e9})
				must(b, err)
			}
		})
	}
}

func BenchmarkOpenClose(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(Options{})
		must(b, err)
		must(b, s.Close())
	}
}
