package fleet

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Endpoint is one engine as Prometheus sees it.
type Endpoint struct {
	// Name of the pod.
	Name string
	// Gatherer exposes the engine's metrics under vLLM's names, as they stand
	// at the fleet's current time.
	prometheus.Gatherer
}

// Endpoints are the fleet's engines.
func (f *Fleet) Endpoints() []Endpoint {
	all := make([]Endpoint, len(f.replicas))
	for i := range f.replicas {
		all[i] = Endpoint{Name: f.names[i], Gatherer: engineGatherer{f, &f.replicas[i]}}
	}
	return all
}

// engineGatherer turns plain counters into metric families.
type engineGatherer struct {
	fleet   *Fleet
	replica *replica
}

// Gather returns the families sorted by name. Offload families are absent
// until their first event, as in vLLM.
func (g engineGatherer) Gather() ([]*dto.MetricFamily, error) {
	g.fleet.storage.advance(g.fleet.now)
	e := exposition{labels: labels("engine", "0", "model_name", g.fleet.profile.Model)}
	g.requests(&e)
	g.tokens(&e)
	g.queues(&e)
	g.cache(&e)
	g.offload(&e)
	g.tiers(&e)
	slices.SortFunc(e.families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return e.families, nil
}

func (g engineGatherer) requests(e *exposition) {
	m := &g.replica.metrics
	e.histogram("vllm:time_to_first_token_seconds", "Time from arrival to first token.", &m.ttft)
	e.histogram("vllm:inter_token_latency_seconds", "Time between two output tokens.", &m.interToken)
	e.histogram("vllm:e2e_request_latency_seconds", "Time from arrival to last token.", &m.endToEnd)
	e.histogram("vllm:request_queue_time_seconds", "Time from arrival to first scheduling.", &m.queue)
	e.histogram("vllm:request_prefill_time_seconds", "Time from first scheduling to first token.", &m.prefill)
	e.histogram("vllm:request_decode_time_seconds", "Time from first to last token.", &m.decode)
	finished := e.family("vllm:request_success_total", "Requests finished.", dto.MetricType_COUNTER)
	e.counter(finished, m.finished, "finished_reason", "length")
	e.counter(finished, 0, "finished_reason", "stop")
	e.counter(finished, 0, "finished_reason", "abort")
	e.counter(finished, 0, "finished_reason", "error")
}

func (g engineGatherer) tokens(e *exposition) {
	m := &g.replica.metrics
	e.plainCounter("vllm:prompt_tokens_total", "Prompt tokens processed.", m.prompt)
	e.plainCounter("vllm:generation_tokens_total", "Tokens generated.", m.generated)
	source := e.family("vllm:prompt_tokens_by_source_total", "Prompt tokens by where their KV cache came from.", dto.MetricType_COUNTER)
	e.counter(source, m.localCompute, "source", "local_compute")
	e.counter(source, m.localHit, "source", "local_cache_hit")
	e.counter(source, m.external, "source", "external_kv_transfer")
}

func (g engineGatherer) queues(e *exposition) {
	r := g.replica
	deferred := float64(r.lookups + r.restoring)
	capacity := float64(r.ready.len())
	e.plainGauge("vllm:num_requests_running", "Requests in execution.", float64(len(r.running)))
	e.plainGauge("vllm:num_requests_waiting", "Requests waiting, for capacity or deferred.", capacity+deferred)
	waiting := e.family("vllm:num_requests_waiting_by_reason", "Requests waiting by reason.", dto.MetricType_GAUGE)
	e.gauge(waiting, capacity, "reason", "capacity")
	e.gauge(waiting, deferred, "reason", "deferred")
	e.plainCounter("vllm:num_preemptions_total", "Requests preempted.", 0)
}

func (g engineGatherer) cache(e *exposition) {
	m, gpu := &g.replica.metrics, g.replica.gpu
	e.plainGauge("vllm:kv_cache_usage_perc", "Share of GPU KV cache in use, 0 to 1.", float64(gpu.pinned())/float64(gpu.capacity))
	e.plainCounter("vllm:prefix_cache_queries_total", "Tokens looked up in the GPU prefix cache.", m.prefixQueries)
	e.plainCounter("vllm:prefix_cache_hits_total", "Tokens found in the GPU prefix cache.", m.prefixHits)
	info := e.family("vllm:cache_config_info", "Cache configuration.", dto.MetricType_GAUGE)
	info.Metric = append(info.Metric, &dto.Metric{
		Label: labels(
			"block_size", strconv.Itoa(int(g.fleet.blockTokens)),
			"engine", "0",
			"num_gpu_blocks", strconv.Itoa(int(gpu.capacity)),
			"num_cpu_blocks", strconv.Itoa(int(g.replica.cpu.capacity)),
		),
		Gauge: &dto.Gauge{Value: proto.Float64(1)},
	})
	if m.lookupDelay.n == 0 {
		return
	}
	e.plainCounter("vllm:external_prefix_cache_queries_total", "Tokens looked up outside the GPU.", m.externalQueries)
	e.plainCounter("vllm:external_prefix_cache_hits_total", "Tokens found outside the GPU.", m.externalHits)
}

func (g engineGatherer) offload(e *exposition) {
	m := &g.replica.metrics
	if m.lookupDelay.n > 0 {
		e.histogram("vllm:kv_offload_lookup_async_delay_seconds", "Time deferred lookups took.", &m.lookupDelay)
	}
	e.transfers("vllm:kv_offload_load", "CPU to GPU", &m.load)
	e.transfers("vllm:kv_offload_store", "GPU to CPU", &m.store)
}

func (g engineGatherer) tiers(e *exposition) {
	m, s := &g.replica.metrics, &g.fleet.storage
	share := 1 / float64(len(g.fleet.replicas)) // the node's writes, told by its engines in equal parts
	fsWrite := volume{s.written * share, s.writing * share}
	e.tier("vllm:kv_offload_tiering_read", "0:primary", m.load.volume, "1:fs", m.sharedRead)
	e.tier("vllm:kv_offload_tiering_write", "0:primary", m.store.volume, "1:fs", fsWrite)
}
