// Package fleet is a deterministic discrete-event model of a vLLM fleet: engine
// steps, the GPU prefix cache, the CPU tier, the node's shared NVMe, the
// asynchronous lookups that queue behind its writes, restores over the copy
// channel, prefix-affinity routing, and the clients.
//
// It stands where the GPUs stand in the data path metrics -> tuner -> store ->
// plugin -> request: it asks a Policy what to do with each request and exposes
// vLLM's metric names for each endpoint. It is calibrated against a published
// measurement matrix (see Compare) and must not know that anything is tuned: no
// tuner, no store, no Prometheus queries.
//
// Virtual time moves only in Fleet.Advance. The same Options give the same
// result to the byte. Arrivals and prefix choice draw from streams of their own
// and service noise is a function of the request, so that policies can be
// compared on common random numbers.
//
// # Warm-up
//
// The published runs are 300 s cells on a fleet that had served the corpus
// before: from 1,600 requests in a run to 7,800 their GPU hit share stays
// within five points. New therefore fills the caches with the traffic
// of an endless earlier run (without spending virtual time), leaves the NVMe
// backlog empty, and starts all streams of a closed loop at once, as a load
// generator does. Statistics count completed requests only, from New or the
// last ResetStats; requests in flight at the end are not counted.
package fleet
