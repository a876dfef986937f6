package plugin

import "time"

// ObserveFirstToken reports the time from the request's arrival to its first
// token, and how many prompt tokens the engine computed itself; negative means
// unknown, and is replaced by what the evidence says if that had PromptTokens.
// Report streamed responses only: without a stream the first token
// cannot be told from the last. A negative time is refused and counted.
func (p *Policy) ObserveFirstToken(d Decision, ttft time.Duration, computedTokens int) {
	if ttft < 0 {
		p.metrics.refusedSamples.WithLabelValues(sampleTTFT).Inc()
		return
	}
	if computedTokens < 0 {
		computedTokens = d.computes - 1
	}
	p.metrics.ttft[armIndex(d.Arm)][d.Action].Observe(ttft.Seconds())
	if d.Evidence {
		p.metrics.addCost(d, ttft, computedTokens)
	}
	if d.restores != nil {
		p.observeRestore(d, ttft, computedTokens)
	}
}

// ObserveOutput reports the number of tokens in a request's finished response.
// A negative number is refused and counted.
func (p *Policy) ObserveOutput(d Decision, tokens int) {
	if tokens < 0 {
		p.metrics.refusedSamples.WithLabelValues(sampleOutput).Inc()
		return
	}
	p.metrics.output[armIndex(d.Arm)][d.Action].Observe(float64(tokens))
}
