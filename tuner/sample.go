package tuner

import (
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// State says what a sample is worth.
type State string

const (
	// OK samples carry signals.
	OK State = "ok"
	// Idle samples saw every engine and no request in flight or finished.
	Idle State = "idle"
	// Unknown samples lack something: an unreachable Prometheus, an engine
	// without data, a value that is not a number. Nothing is decided on them.
	Unknown State = "unknown"
)

// Sample is one observation of a pool.
type Sample struct {
	From, To time.Time
	State    State
	// Why a sample is unknown.
	Why string
	// Signals are meaningful only for OK.
	Signals Signals
	// Plugin is what the plugin's replicas exported; its own State tells
	// whether they did.
	Plugin PluginSample
	// Queries as sent.
	Queries []string
}

// Signals are sums over the engines of a pool and the length of a window, so
// that those of several samples add up.
type Signals struct {
	// Seconds is the length of the window.
	Seconds float64
	// Requests completed, and the sum of their end-to-end seconds.
	Requests, E2ESeconds float64
	// FirstTokens seen, the sum of their TTFT in seconds, and how many of them
	// met the SLO.
	FirstTokens, TTFTSeconds, WithinSLO float64
	// HasSLO tells that the SLO's histogram bucket was there.
	HasSLO bool
	// Errors are requests that ended in error.
	Errors float64
	// Tokens generated, of prompts, and of prompts brought from outside the GPU.
	Generated, Prompt, External float64
	// RunningSeconds and WaitingSeconds are gauge values times window length.
	RunningSeconds, WaitingSeconds float64
	// LookupSeconds is the time requests were deferred by lookups, CopySeconds
	// the copy time of a rank; both 0 while the engine has restored nothing.
	LookupSeconds, CopySeconds float64
	// Engines that were covered.
	Engines int
}

// deferral is how long a request that was let restore waited for its lookup, on
// average; 0 where that is not known.
func (s Sample) deferral() time.Duration {
	if s.State != OK || s.Plugin.State != OK || s.Plugin.Loads <= 0 {
		return 0
	}
	seconds := s.Signals.LookupSeconds / s.Plugin.Loads
	if !(seconds >= 0 && seconds < longestDeferral.Seconds()) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// longestDeferral that is believed.
const longestDeferral = time.Hour

// plus adds the signals of two disjoint windows.
func (s Signals) plus(o Signals) Signals {
	return Signals{
		Seconds:  s.Seconds + o.Seconds,
		Requests: s.Requests + o.Requests, E2ESeconds: s.E2ESeconds + o.E2ESeconds,
		FirstTokens: s.FirstTokens + o.FirstTokens, TTFTSeconds: s.TTFTSeconds + o.TTFTSeconds,
		WithinSLO: s.WithinSLO + o.WithinSLO, HasSLO: o.HasSLO && (s.HasSLO || s.Seconds == 0),
		Errors: s.Errors + o.Errors, Generated: s.Generated + o.Generated,
		Prompt: s.Prompt + o.Prompt, External: s.External + o.External,
		RunningSeconds: s.RunningSeconds + o.RunningSeconds, WaitingSeconds: s.WaitingSeconds + o.WaitingSeconds,
		LookupSeconds: s.LookupSeconds + o.LookupSeconds, CopySeconds: s.CopySeconds + o.CopySeconds,
		Engines: max(s.Engines, o.Engines),
	}
}

func total(samples []Sample) Signals {
	var sum Signals
	for _, s := range samples {
		sum = sum.plus(s.Signals)
	}
	return sum
}

// InFlight is the mean number of requests running or waiting.
func (s Signals) InFlight() float64 { return (s.RunningSeconds + s.WaitingSeconds) / s.Seconds }

// Waiting is the mean number of requests waiting, deferred ones included.
func (s Signals) Waiting() float64 { return s.WaitingSeconds / s.Seconds }

// stalled reports that requests wait and not one has come as far as its first
// token: a wedge that no latency shows, because nothing completes.
func (s Signals) stalled() bool {
	return s.FirstTokens == 0 && s.Requests == 0 && s.WaitingSeconds > 0
}

// MeanE2E is the mean end-to-end time of completed requests, in seconds.
func (s Signals) MeanE2E() float64 { return s.E2ESeconds / s.Requests }

// MeanTTFT is the mean time to first token, in seconds.
func (s Signals) MeanTTFT() float64 { return s.TTFTSeconds / s.FirstTokens }

// Throughput is completed requests a second.
func (s Signals) Throughput() float64 { return s.Requests / s.Seconds }

// RestorePerRequest is the seconds of lookup and copy a request waited on
// average, over restored and other requests alike.
func (s Signals) RestorePerRequest() float64 {
	return (s.LookupSeconds + s.CopySeconds) / s.Requests
}

// ExternalShare is the share of prompt tokens that came from outside the GPU.
func (s Signals) ExternalShare() float64 { return s.External / s.Prompt }

// Within is the share of first tokens that met the SLO.
func (s Signals) Within() float64 { return s.WithinSLO / s.FirstTokens }

// named lists the signals that a record shows, in stable units. Ratios whose
// denominator is zero are left out: they are not known.
func (s Signals) named(o Objective) map[string]float64 {
	m := map[string]float64{"seconds": s.Seconds, "requests": s.Requests, "inFlight": s.InFlight(), "waiting": s.Waiting()}
	if s.Requests > 0 {
		m["e2eMeanSeconds"] = s.MeanE2E()
		m["requestsPerSecond"] = s.Throughput()
		m["restoreSecondsPerRequest"] = s.RestorePerRequest()
	}
	if s.FirstTokens > 0 {
		m["ttftMeanSeconds"] = s.MeanTTFT()
		if s.HasSLO {
			m["withinSLO"] = s.Within()
		}
	}
	if s.Prompt > 0 {
		m["externalShare"] = s.ExternalShare()
	}
	if c, ok := o.Cost(s); ok {
		m["costSeconds"] = c
	}
	return m
}

// record turns a sample into the form the history keeps.
func (s Sample) record(arm store.Arm, o Objective) store.Sample {
	r := store.Sample{Time: s.To, Arm: arm, State: string(s.State), Why: s.Why}
	if s.State == OK {
		r.Signals = s.Signals.named(o)
	}
	return r
}
