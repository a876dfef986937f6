package llmd

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// skip says why a request was not decided. The set is closed.
type skip uint8

const (
	skipNone     skip = iota
	skipRequest       // no request or no body
	skipRaw           // a body the EPP's parser did not parse, which it sends as it came
	skipProto         // a gRPC body, which the EPP sends as it came
	skipEndpoint      // no endpoint was chosen

	skips = iota
)

var skipNames = [skips]string{skipRequest: "no_body", skipRaw: "raw_body", skipProto: "grpc_body", skipEndpoint: "no_endpoint"}

// fault is something that keeps a decision from being as good, or as effective,
// as it should be. The set is closed.
type fault uint8

const (
	// faultCoordinator: prefill and decode are separate. Their coordinator
	// sends a request of its own to the prefill engine, and replaces
	// kv_transfer_params in it.
	faultCoordinator fault = iota
	// faultPlugin: another plugin of the EPP changed the fields afterwards.
	faultPlugin
	// faultProfile: the configured profile did not run for a request.
	faultProfile
	// faultEvidence: the evidence attribute holds another type.
	faultEvidence
	// faultQueueStuck: a sample of a queue that never moves while the running
	// requests do.
	faultQueueStuck
	// faultFull: too many requests in flight to remember another one.
	faultFull
	// faultExpired: the end of a request was never reported.
	faultExpired

	faults = iota
)

var faultNames = [faults]string{
	faultCoordinator: "replaced_by_coordinator",
	faultPlugin:      "replaced_by_plugin",
	faultProfile:     "profile_absent",
	faultEvidence:    "foreign_evidence",
	faultQueueStuck:  "queue_metric_stuck",
	faultFull:        "feedback_full",
	faultExpired:     "feedback_expired",
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
	for i := skipNone + 1; i < skips; i++ {
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

func (m *metrics) skip(s skip)   { m.skipped[s].Inc() }
func (m *metrics) fault(f fault) { m.faults[f].Inc() }
