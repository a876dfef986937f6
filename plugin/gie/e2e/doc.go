// Package e2e runs the Endpoint Pickers as users run them, and holds them to what
// arrives at the model servers.
//
// Real are the EPP processes and their configuration, ext_proc as Envoy speaks
// it, the KV events over ZeroMQ, the scrapes and the parameter file. Stand-ins
// are the API server (pods and one InferencePool), Envoy, and the engines, which
// say and do what vLLM does with prefixes, and compute nothing.
//
// Its tests have the build tag e2e; "make e2e-gie" runs them. Those of
// llm-d-router, whose module not every proxy has, need nothing of it but the
// binary that EPP_LLMD names; "make e2e-llmd" builds that from a checkout.
package e2e
