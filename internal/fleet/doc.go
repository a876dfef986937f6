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
//
// # What it does not reproduce
//
// Over ten seeds the embedded profile is off by 2.1% in throughput and 10.0% in
// mean TTFT on the report it was fitted to, by 2.7% and 12.9% on the two that
// were held out (geometric means). Only parameters were held back from those:
// the structure was chosen with all three reports in view. Known misfits:
//
//   - External share: 21% at 1K where 27-32% was measured, 14-18% at 2K to 8K
//     where it was 9-13%. The tier is one LRU for all lengths; something favours
//     short prefixes that the model does not have.
//   - External share of the threshold policies: 14-20% against 7-14%, at about
//     the measured throughput. As published, a token restored under a threshold
//     saves twice the time one saves under load; no linear cost explains that.
//   - Always-load at 8K/C32 is 14% too fast, and at 8K/C64 it loses another 10
//     to 20% after the first five minutes, once the backlog has filled.
//   - p99 TTFT of 1024+8 at 2K/C64 and 8K/C64 is about half of the measured.
//   - Policies that differ in the queue limit alone are equal here, as their
//     gates hardly ever close; published runs differ by up to 2.4%.
//   - The published waiting means under collapse (up to 57 of 64 streams) exceed
//     throughput times TTFT of the same runs; the model keeps Little's law.
//   - Preemption: an engine reserves room for a request's output up front.
package fleet
