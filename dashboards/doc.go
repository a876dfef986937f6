// Package dashboards holds what an operator looks at in Grafana, as code: four
// dashboards, one panel a function, and beside them the recording rules and
// alerts (rules.yaml; what to do when one fires is in docs/runbooks.md).
//
// The JSON files here are what [All] builds, checked in so that they can be
// imported without Go. It must not know how the tuner decides: it reads
// the metrics of vLLM, of the plugin (selective_kv_) and of the tuner (kvtuner_)
// by name.
package dashboards

//go:generate go test . -run TestFiles -update
