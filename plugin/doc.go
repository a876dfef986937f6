// Package plugin is the policy that decides, per request, whether the engine
// chosen by the Endpoint Picker may restore KV cache from outside GPU memory or
// must recompute the prefix.
//
// It is the last stop of the data path metrics -> tuner -> store -> plugin ->
// request: evidence + waiting queue + parameters -> decision. It reads the
// store's contracts and nothing else: no EPP framework, no Prometheus queries,
// no Kubernetes. The folder adapter stands between it and the hooks of an Endpoint
// Picker; those beside it translate for one framework each.
//
// An adapter feeds the waiting queue with [Policy.Observe] and the parameter
// document with [Policy.Apply], asks [Policy.Decide] once a request, writes the
// answer into the body with [Decision.Mutate], and reports what came of it with
// [Policy.ObserveFirstToken] and [Policy.ObserveOutput].
package plugin
