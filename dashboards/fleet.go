package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func fleet() *dashboard.DashboardBuilder {
	return page("fleet", "Fleet", "Each endpoint: its queue and gate, what waits for a restore, and how fast cache moves between the tiers.").
		WithPanel(gates()).
		WithPanel(queues()).WithPanel(deferred()).WithPanel(running()).
		WithPanel(tierReads()).WithPanel(tierWrites()).WithPanel(copies()).
		WithPanel(copyCost()).WithPanel(lookups()).WithPanel(cacheUsage()).
		WithPanel(gateMoves()).WithPanel(sampleAge()).WithPanel(hitRates())
}

func gates() *statetimeline.PanelBuilder {
	return states("Queue gates",
		"A closed gate makes the endpoint's requests recompute because too many are waiting. One endpoint that stays closed while others are open is slow or gets too much; all of them closed is overload.",
		"open", "closed", query{`max by (endpoint) (selective_kv_endpoint_gate_closed{PLUGIN})`, "{{endpoint}}"})
}

func queues() *timeseries.PanelBuilder {
	return lines("Smoothed queue and limit",
		"The moving average of waiting requests that the gate goes by (half-life 2 s unless configured otherwise), as of the last scrape. It closes at the limit and reopens at half of it.",
		plain,
		query{`max by (endpoint) (selective_kv_endpoint_waiting_ewma{PLUGIN})`, "{{endpoint}}"},
		query{`max by (pool) (selective_kv_parameter{PLUGIN,arm="baseline",name="maxWaitingRequests"})`, "limit, {{pool}}"})
}

func deferred() *timeseries.PanelBuilder {
	return lines("Requests deferred",
		"Requests that wait for their cache to be restored. Many on all endpoints point at shared storage, many on one at that engine.",
		plain, query{`sum by (pod) (vllm:num_requests_waiting_by_reason{ENGINE,reason="deferred"})`, "{{pod}}"})
}

func running() *timeseries.PanelBuilder {
	return lines("Requests running",
		"Requests in execution. Endpoints far apart say that the router does not spread the load.",
		plain, query{`sum by (pod) (vllm:num_requests_running{ENGINE})`, "{{pod}}"})
}

func tierReads() *timeseries.PanelBuilder {
	return lines("Read from each tier",
		"Bytes a second read, by tier: 0:primary is CPU memory, 1:fs the file system (NVMe or shared storage). A flat top of 1:fs is the storage's limit: above it restores queue. Empty while a tier is not read.",
		bytesRate, query{`sum by (pod, tier) (rate(vllm:kv_offload_tiering_read_bytes_total{ENGINE}[$__rate_interval]))`, "{{pod}} {{tier}}"})
}

func tierWrites() *timeseries.PanelBuilder {
	return lines("Written to each tier",
		"Bytes a second written, by tier. Writes to 1:fs compete with restores for the same storage.",
		bytesRate, query{`sum by (pod, tier) (rate(vllm:kv_offload_tiering_write_bytes_total{ENGINE}[$__rate_interval]))`, "{{pod}} {{tier}}"})
}

func copies() *timeseries.PanelBuilder {
	return lines("Copies between CPU and GPU",
		"Bytes a second of all ranks: restored is CPU to GPU, offloaded GPU to CPU.",
		bytesRate,
		query{`sum by (pod) (rate(vllm:kv_offload_load_bytes_total{ENGINE}[$__rate_interval]))`, "{{pod}} restored"},
		query{`sum by (pod) (rate(vllm:kv_offload_store_bytes_total{ENGINE}[$__rate_interval]))`, "{{pod}} offloaded"})
}

func copyCost() *timeseries.PanelBuilder {
	return lines("Time to copy a GiB",
		"Seconds of copying from CPU memory to the GPU for each GiB. It should be flat; growth means contention for PCIe or memory bandwidth. Queueing and the read from storage are not in it.",
		seconds, query{`sum by (pod) (rate(vllm:kv_offload_load_time_total{ENGINE}[$__rate_interval])) * 2^30 / sum by (pod) (rate(vllm:kv_offload_load_bytes_total{ENGINE}[$__rate_interval]))`, "{{pod}}"})
}

func lookups() *timeseries.PanelBuilder {
	return lines("Time of a deferred lookup",
		"Mean time from a deferred lookup to its answer: what a request waits for storage. Misses and aborted requests are in it.",
		seconds, query{`sum by (pod) (rate(vllm:kv_offload_lookup_async_delay_seconds_sum{ENGINE}[$__rate_interval])) / sum by (pod) (rate(vllm:kv_offload_lookup_async_delay_seconds_count{ENGINE}[$__rate_interval]))`, "{{pod}}"})
}

func cacheUsage() *timeseries.PanelBuilder {
	return lines("GPU cache in use",
		"Share of the GPU's KV cache that running requests hold. Near 100% requests wait for capacity and no threshold helps.",
		share, query{`max by (pod) (vllm:kv_cache_usage_perc{ENGINE})`, "{{pod}}"}).Max(1)
}

func gateMoves() *timeseries.PanelBuilder {
	return lines("Gate changes",
		"How often a gate closed or opened, a second. A gate that flutters has a limit near the usual queue.",
		plain, query{`sum by (endpoint, to) (rate(selective_kv_endpoint_gate_transitions_total{PLUGIN}[$__rate_interval]))`, "{{endpoint}} {{to}}"})
}

func sampleAge() *timeseries.PanelBuilder {
	return lines("Age of the queue samples",
		"How old the queue length is that the gate knows. Samples too old are ignored and the gate opens, so a growing line is a gate out of work.",
		seconds, query{`max by (endpoint) (selective_kv_endpoint_sample_age_seconds{PLUGIN})`, "{{endpoint}}"})
}

func hitRates() *timeseries.PanelBuilder {
	return lines("Cache hit rates",
		"Share of the tokens looked up that were found, on the GPU and outside it. Outside counts what is there, restored or not.",
		share,
		query{hitRate("vllm:prefix_cache"), "{{pod}} GPU"},
		query{hitRate("vllm:external_prefix_cache"), "{{pod}} outside"}).Max(1)
}

func hitRate(name string) string {
	return `sum by (pod) (rate(` + name + `_hits_total{ENGINE}[$__rate_interval])) / sum by (pod) (rate(` + name + `_queries_total{ENGINE}[$__rate_interval]))`
}
