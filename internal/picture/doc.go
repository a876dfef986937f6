// Package picture draws a Grafana dashboard as one SVG picture: its panels, from the
// dashboard's own JSON and from what a Prometheus answers to their queries.
//
// It draws what this project's dashboards use, roughly as Grafana does, so that the
// documentation can show them. It must not know what the series mean.
package picture
