package kvevents

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// skip is why an event, or a part of it, was left out.
type skip uint8

const (
	skipUnknownEvent skip = iota
	skipOtherGroup
	skipTier
	skipBlockSize
	skipUnknownParent
	skipUnknownBlock
	skipConflict

	skips = iota
)

var skipNames = [skips]string{"unknown_event", "other_group", "too_many_tiers", "block_size", "unknown_parent", "unknown_block", "conflict"}

// loss is why an endpoint's blocks were forgotten.
type loss uint8

const (
	lossGap loss = iota
	lossRestart
	lossMalformed
	lossReconnect

	losses = iota
)

var lossNames = [losses]string{"gap", "restart", "malformed", "reconnect"}

// lookup is what one endpoint could say of one request.
type lookup uint8

const (
	lookupKnown lookup = iota
	lookupUnfollowed
	lookupDisconnected
	lookupSettling
	lookupNoBlockSize
	lookupSalt

	lookups = iota
)

var lookupNames = [lookups]string{"known", "unfollowed", "disconnected", "settling", "no_block_size", "salt"}

// outcome is what became of one request.
type outcome uint8

const (
	outcomeTokens outcome = iota
	outcomeNoEndpoint
	outcomeUnsupported
	outcomeMultimodal
	outcomeTooLong
	outcomeNoTokenizer
	outcomeTokenizerBusy
	outcomeTokenizerTimeout
	outcomeTokenizerError
	outcomeTooLate

	outcomes = iota
)

var outcomeNames = [outcomes]string{"tokens", "no_endpoint", "unsupported", "multimodal", "too_long", "no_tokenizer", "tokenizer_busy", "tokenizer_timeout", "tokenizer_error", "too_late"}

const prefix = "selective_kv_evidence_"

// metrics counts over all endpoints: series of their own would be gone with
// them, and one that is lost shows in the lookups.
type metrics struct {
	requests [outcomes]prometheus.Counter
	lookups  [lookups]prometheus.Counter
	skipped  [skips]prometheus.Counter
	resets   [losses]prometheus.Counter

	batches, lost, repeated           prometheus.Counter
	stored, removed, cleared, evicted prometheus.Counter
	connects, replays, failedReplays  prometheus.Counter
	tokenizerHits, tokenizerCalls     prometheus.Counter
	all                               []prometheus.Collector
}

// newMetrics registers the series. state returns the endpoints followed, those
// connected, and the blocks they hold.
func newMetrics(r prometheus.Registerer, state func() (endpoints, connected, blocks int)) (*metrics, error) {
	m := &metrics{}
	m.vector("requests_total", "Requests, by whether their tokens could be told, or why it was not worth the try.", "result", outcomeNames[:], m.requests[:])
	m.vector("lookups_total", "Candidate endpoints of requests with tokens or without an endpoint, by what they could say.", "result", lookupNames[:], m.lookups[:])
	m.vector("skipped_total", "Events or blocks left out, by reason.", "reason", skipNames[:], m.skipped[:])
	m.vector("resets_total", "Times an endpoint's blocks were forgotten, by reason.", "reason", lossNames[:], m.resets[:])
	m.batches = m.counter("batches_total", "Messages applied.")
	m.lost = m.counter("lost_batches_total", "Messages that a sequence number shows to be missing, at first sight: a replay may bring them.")
	m.repeated = m.counter("repeated_batches_total", "Messages received once more.")
	m.stored = m.counter("blocks_stored_total", "Blocks stored in a tier.")
	m.removed = m.counter("blocks_removed_total", "Blocks removed from a tier.")
	m.cleared = m.counter("clears_total", "Times an engine cleared all its blocks.")
	m.evicted = m.counter("blocks_evicted_total", "Held blocks forgotten because an endpoint has more than maxBlocks.")
	m.connects = m.counter("connects_total", "Connections made to event sockets.")
	m.replays = m.counter("replays_total", "Replays asked for.")
	m.failedReplays = m.counter("replay_failures_total", "Replays that did not come to their end.")
	m.tokenizerHits = m.counter("tokenizer_hits_total", "Texts whose tokens were cached.")
	m.tokenizerCalls = m.counter("tokenizer_calls_total", "Texts sent to the tokenizer.")
	m.gauge("endpoints", "Endpoints followed.", func() float64 { n, _, _ := state(); return float64(n) })
	m.gauge("endpoints_connected", "Endpoints whose event socket is connected.", func() float64 { _, n, _ := state(); return float64(n) })
	m.gauge("blocks", "Blocks held, over all endpoints.", func() float64 { _, _, n := state(); return float64(n) })
	return m, m.register(r)
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	m.all = append(m.all, c)
	return c
}

func (m *metrics) gauge(name, help string, value func() float64) {
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, value))
}

func (m *metrics) vector(name, help, label string, values []string, to []prometheus.Counter) {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{label})
	for i, value := range values {
		to[i] = v.WithLabelValues(value)
	}
	m.all = append(m.all, v)
}

// register takes the place of series that an earlier producer of the process
// left: only one is in use at a time.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range m.all {
		err := r.Register(c)
		var taken prometheus.AlreadyRegisteredError
		if errors.As(err, &taken) {
			r.Unregister(taken.ExistingCollector)
			err = r.Register(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) skip(s skip) { m.skipped[s].Inc() }
