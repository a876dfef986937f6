// Package lab closes the loop in virtual time: a simulated fleet that asks the
// real plugin, an embedded Prometheus that scrapes both, the real tuner that
// queries it over its HTTP API, and the store that carries parameters back.
// Demo, bench and the closed-loop tests are made of its runs.
//
// It must not know how results are shown. Everything random comes from a run's
// seed, and the wall clock is never read, so the same run has the same outcome.
package lab
