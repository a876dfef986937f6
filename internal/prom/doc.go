// Package prom is a Prometheus that lives inside the process: the TSDB and
// PromQL engine of github.com/prometheus/prometheus behind the HTTP v1 query
// API, fed with scrapes at timestamps the caller chooses.
//
// It is the first stop of the data path metrics -> tuner -> store -> plugin ->
// request wherever there is no cluster: the demo, the benchmark and the tests.
// Virtual time is free to run thousands of times faster than the wall clock,
// and far from it. The tuner reads it through
// prometheus/client_golang/api/prometheus/v1, exactly as it reads a remote
// server: over a loopback socket (Listen) or without one (RoundTripper).
//
// It must not know what the series mean, who exposes them, or who asks.
package prom
