package adapter

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Skip says why a request was not decided. The set is closed.
type Skip uint8

// Reasons to skip a request.
const (
	// SkipNone: it is decided.
	SkipNone Skip = iota
	// SkipRequest: no request or no body.
	SkipRequest
	// SkipRaw: a body the EPP's parser did not parse, which it sends as it came.
	SkipRaw
	// SkipProto: a gRPC body, which the EPP sends as it came.
	SkipProto
	// SkipEndpoint: no endpoint was chosen.
	SkipEndpoint

	skips = iota
)

var skipNames = [skips]string{SkipRequest: "no_body", SkipRaw: "raw_body", SkipProto: "grpc_body", SkipEndpoint: "no_endpoint"}

// Fault is something that keeps a decision from being as good, or as effective,
// as it should be. The set is closed.
type Fault uint8

// Faults.
const (
	// FaultCoordinator: the decision changed a request that a coordinator of
	// prefill and decode sends on, with kv_transfer_params of its own.
	FaultCoordinator Fault = iota
	// FaultPlugin: another plugin of the EPP changed the fields afterwards.
	FaultPlugin
	// FaultProfile: the configured profile did not run for a request.
	FaultProfile
	// FaultProducer: the configured producer of evidence does not exist.
	FaultProducer
	// FaultEvidence: the evidence attribute holds another type.
	FaultEvidence
	// FaultQueueAbsent: a scrape without the waiting-queue metric.
	FaultQueueAbsent
	// FaultQueueStuck: a sample of a queue that never moves while the running
	// requests do.
	FaultQueueStuck
	// FaultFull: too many requests in flight to remember another one.
	FaultFull
	// FaultExpired: the end of a request was never reported.
	FaultExpired

	faults = iota
)

var faultNames = [faults]string{
	FaultCoordinator: "replaced_by_coordinator",
	FaultPlugin:      "replaced_by_plugin",
	FaultProfile:     "profile_absent",
	FaultProducer:    "producer_absent",
	FaultEvidence:    "foreign_evidence",
	FaultQueueAbsent: "queue_metric_absent",
	FaultQueueStuck:  "queue_metric_stuck",
	FaultFull:        "feedback_full",
	FaultExpired:     "feedback_expired",
}

// metrics are the adapter's own; the policy has the rest.
type metrics struct {
	skipped [skips]prometheus.Counter
	faults  [faults]prometheus.Counter
}

func newMetrics(pool string, r prometheus.Registerer) (*metrics, error) {
	skipped, err := counters(r, "selective_kv_adapter_skipped_total",
		"Requests that were sent as they came, without a decision, by reason.")
	if err != nil {
		return nil, err
	}
	faulty, err := counters(r, "selective_kv_adapter_faults_total",
		"What kept a decision from being as good or as effective as it should be, by reason.")
	if err != nil {
		return nil, err
	}
	m := new(metrics)
	for i := SkipNone + 1; i < skips; i++ {
		m.skipped[i] = skipped.WithLabelValues(pool, skipNames[i])
	}
	for i := range m.faults {
		m.faults[i] = faulty.WithLabelValues(pool, faultNames[i])
	}
	return m, nil
}

// counters registers a family, or returns the one that is registered already.
func counters(r prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"pool", "reason"})
	if r == nil {
		return vec, nil
	}
	err := r.Register(vec)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", name, err)
	}
	return vec, nil
}

// Skip counts a request that is sent as it came.
func (a *Adapter) Skip(why Skip) { a.metrics.skipped[why].Inc() }

// Fault counts a fault.
func (a *Adapter) Fault(which Fault) { a.metrics.faults[which].Inc() }
