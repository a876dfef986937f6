// Package preflight looks at a set-up as an engineer would who was called
// because kvtuner does nothing: is Prometheus there and whole, are these the
// engines, does the plugin decide for them, does its document arrive, may
// anything be tuned at all. Each check is a small function in a table
// (checks.go) and answers with findings: what is so, which setting it is about,
// what to do.
//
// It must not change anything, nor know how candidates are found. What could not
// be asked is said to be unknown, never fine.
package preflight
