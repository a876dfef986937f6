package tuner

import (
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Mode says whether decisions reach the fleet.
type Mode string

const (
	// Observe runs the loop, proposes and explains, and publishes nothing.
	Observe Mode = "observe"
	// Propose asks before each trial; an approved one runs, guarded, as in
	// Enforce.
	Propose Mode = "propose"
	// Enforce publishes trials and moves.
	Enforce Mode = "enforce"
)

// Settings are everything an operator decides about one pool.
type Settings struct {
	// Name of the pool: the document's pool, the label of every metric.
	Name string `mapstructure:"name"`
	Mode Mode   `mapstructure:"mode"`
	// Approval is how long, in Propose, a proposal waits for one.
	Approval time.Duration `mapstructure:"approval"`
	// Selector picks the vLLM series of this pool, as PromQL matchers without
	// braces: `namespace="llm",model_name="qwen3"`.
	Selector string `mapstructure:"selector"`
	// PluginSelector picks the plugin's series; empty means pool="<name>".
	PluginSelector string `mapstructure:"pluginSelector"`
	// EndpointLabel tells the engines apart, ReplicaLabel the EPP replicas.
	EndpointLabel string `mapstructure:"endpointLabel"`
	ReplicaLabel  string `mapstructure:"replicaLabel"`
	// Endpoints is the least number of engines a sample must cover; 0 accepts
	// whatever answers.
	Endpoints int `mapstructure:"endpoints"`
	// ScrapeInterval of the engines; a sample is one such interval, or several.
	ScrapeInterval time.Duration `mapstructure:"scrapeInterval"`
	// Metrics are the names under which the engines' series are found.
	Metrics Metrics `mapstructure:"metrics"`
	// TensorParallel ranks of an engine: offload times are summed over them.
	TensorParallel int `mapstructure:"tensorParallel"`
	// Initial parameters, published when the store holds no document yet.
	Initial store.Params `mapstructure:"initial"`
	Bounds  store.Bounds `mapstructure:"bounds"`

	Objective Objective `mapstructure:"objective"`
	Guard     Guard     `mapstructure:"guard"`
	Trial     Trial     `mapstructure:"trial"`
	Search    Search    `mapstructure:"search"`
	Schedule  Schedule  `mapstructure:"schedule"`

	// Without these mechanisms, for measuring what they are worth.
	Without []Mechanism `mapstructure:"-"`
}

// Objective is the cost of a request in seconds: a weighted sum, lower is
// better. Weights are relative; at least one is positive.
type Objective struct {
	// E2E weighs the mean end-to-end time of completed requests.
	E2E float64 `mapstructure:"e2e"`
	// Throughput weighs the requests in flight divided by the completion rate:
	// by Little's law the time a request spends in the system, including those
	// that have not finished.
	Throughput float64 `mapstructure:"throughput"`
	// TTFT weighs the mean time to first token, on top of its share in E2E.
	TTFT float64 `mapstructure:"ttft"`
	// Restore weighs the seconds of lookup and copy a request waits on average.
	Restore float64 `mapstructure:"restore"`
}

// Guard bounds the harm a candidate can do.
type Guard struct {
	// TTFT is the SLO: it must be an edge of vLLM's TTFT histogram.
	TTFT time.Duration `mapstructure:"ttft"`
	// Within is the share of requests that must meet it, 0 to 1. 0 disables
	// the SLO check.
	Within float64 `mapstructure:"within"`
	// MaxRegression is the relative cost increase over the incumbent that ends
	// a trial when two samples in a row exceed it.
	MaxRegression float64 `mapstructure:"maxRegression"`
	// MaxErrorShare is the share of requests that may end in error.
	MaxErrorShare float64 `mapstructure:"maxErrorShare"`
	// Cooldown before anything is explored again after an aborted trial; it
	// doubles with each further abort up to MaxCooldown. Also the wait after a
	// rollback and after someone else wrote the document.
	Cooldown    time.Duration `mapstructure:"cooldown"`
	MaxCooldown time.Duration `mapstructure:"maxCooldown"`
	// MaxExposure is the share of the last four hours in which candidates may
	// have been in force when another trial starts, 0 to 1. A shed does not ask.
	MaxExposure float64 `mapstructure:"maxExposure"`
	// CollapseWaiting is the share of in-flight requests that wait, at or above
	// which (with the SLO broken) restores are shed without a trial; 0 disables.
	CollapseWaiting float64 `mapstructure:"collapseWaiting"`
}

// Trial sets how a candidate is compared with the incumbent.
type Trial struct {
	// Block is how long one arm runs before the other takes over; its first
	// Washout is not judged, because the storage backlog of the other arm is
	// still being worked off; it is longer, up to Block, where restores were
	// seen to wait for more than half of it.
	Block   time.Duration `mapstructure:"block"`
	Washout time.Duration `mapstructure:"washout"`
	// MaxBlocks of the candidate before a trial ends undecided.
	MaxBlocks int `mapstructure:"maxBlocks"`
	// Alpha is the error rate of a trial's test. Of an explored candidate: the
	// chance that one that is no better is found better, however often one looks.
	// Of one that the cost curves predicted: the posterior probability that a
	// move is no improvement.
	Alpha float64 `mapstructure:"alpha"`
	// MinEffect is the relative improvement worth moving for.
	MinEffect float64 `mapstructure:"minEffect"`
	// MinRequests an arm must have served before it is judged.
	MinRequests int `mapstructure:"minRequests"`
}

// Search sets where candidates come from.
type Search struct {
	// Step is the first step on the ladder, in rungs; it halves when every
	// neighbour at that distance has failed, and doubles on success up to MaxStep.
	Step    int `mapstructure:"step"`
	MaxStep int `mapstructure:"maxStep"`
	// Explore is the least time between two trials that no evidence asked for.
	// When all neighbours of the incumbent were tried the search rests for
	// MaxExplore, or until something changes.
	Explore    time.Duration `mapstructure:"explore"`
	MaxExplore time.Duration `mapstructure:"maxExplore"`
	// BatchCost is the share of a recompute's time by which it delays each
	// request decoding beside it, 0 to 1: prefill and decode overlap partly.
	BatchCost float64 `mapstructure:"batchCost"`
	// Evidence is how far back the cost curves look.
	Evidence time.Duration `mapstructure:"evidence"`
	// Adaptive says whether requests may be weighed one by one.
	Adaptive AdaptiveSearch `mapstructure:"adaptive"`
}

// AdaptiveSearch says what the tuner does with store.Adaptive.
type AdaptiveSearch string

const (
	// AdaptiveOff never uses it, and publishes no costs.
	AdaptiveOff AdaptiveSearch = "off"
	// AdaptiveTry tries it against store.Threshold like any other candidate, and
	// the other way round.
	AdaptiveTry AdaptiveSearch = "try"
	// AdaptiveOn uses it always.
	AdaptiveOn AdaptiveSearch = "on"
)

// Schedule says when tuning may happen; no windows means always.
type Schedule struct {
	// Zone is the IANA time zone of the windows.
	Zone    string   `mapstructure:"zone"`
	Windows []Window `mapstructure:"windows"`
}

// Window opens at each time of a five-field cron expression, for Duration.
type Window struct {
	Start    string        `mapstructure:"start"`
	Duration time.Duration `mapstructure:"duration"`
}

// DefaultSettings are sound for vLLM behind a 15 s scrape. Sources: block and
// washout from the study of switchback designs (30 s blocks had the wrong sign,
// 150 s blocks the right one); minEffect from the published run-to-run noise of
// about 2%.
func DefaultSettings() Settings {
	return Settings{
		Mode:           Observe,
		Approval:       time.Hour,
		Metrics:        Metrics{Preset: defaultPreset},
		EndpointLabel:  "pod",
		ReplicaLabel:   "pod",
		ScrapeInterval: 15 * time.Second,
		TensorParallel: 1,
		Initial:        store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8},
		Bounds:         store.DefaultBounds(),
		Objective:      Objective{E2E: 1, TTFT: 0.5},
		Guard: Guard{
			TTFT: 5 * time.Second, Within: 0.9, MaxRegression: 0.25, MaxErrorShare: 0.02,
			Cooldown: 10 * time.Minute, MaxCooldown: 4 * time.Hour, CollapseWaiting: 0.4, MaxExposure: 0.3,
		},
		Trial: Trial{
			Block: 150 * time.Second, Washout: time.Minute, MaxBlocks: 4,
			Alpha: 0.02, MinEffect: 0.01, MinRequests: 100,
		},
		Search: Search{
			Step: 2, MaxStep: 4, Explore: 15 * time.Minute, MaxExplore: 24 * time.Hour,
			BatchCost: 0.5, Evidence: 3 * time.Minute, Adaptive: AdaptiveOff,
		},
		Schedule: Schedule{Zone: "UTC"},
	}
}

// policies in the order of the ladder.
func (a AdaptiveSearch) policies() []store.LoadPolicy {
	switch a {
	case AdaptiveTry:
		return []store.LoadPolicy{store.Threshold, store.Adaptive}
	case AdaptiveOn:
		return []store.LoadPolicy{store.Adaptive}
	default:
		return []store.LoadPolicy{store.Threshold}
	}
}

// clamp returns the nearest parameters that bounds and search.adaptive allow, and
// whether that differs from p. In mode Observe the policy in force stays, for
// nothing will change it; in mode Propose it takes an approval to make it adaptive.
func (s Settings) clamp(p store.Params) (clamped store.Params, moved bool) {
	clamped, _ = s.Bounds.Clamp(p)
	switch {
	case s.Search.Adaptive == AdaptiveOff && s.Mode != Observe:
		clamped.LoadPolicy = store.Threshold
	case s.Search.Adaptive == AdaptiveOn && s.Mode == Enforce:
		clamped.LoadPolicy = store.Adaptive
	}
	return clamped, clamped != p
}

// step is the length of a sample: the fewest scrape intervals that last at least
// 15 s, so that a sample holds enough requests to be worth a look.
func (s Settings) step() time.Duration {
	if s.ScrapeInterval <= 0 { // refused by Validate
		return 0
	}
	const shortest = 15 * time.Second
	n := (shortest + s.ScrapeInterval - 1) / s.ScrapeInterval
	return n * s.ScrapeInterval
}

// blockSamples is the number of samples in the judged part of a block.
func (s Settings) blockSamples() int {
	return max(minBlockSamples, int((s.Trial.Block-s.Trial.Washout)/s.step()))
}

// trialLease is how long a published block stays in force without being renewed:
// long enough for a block that has to be extended, and for its acknowledgement.
func (s Settings) trialLease() time.Duration { return 2*s.Trial.Block + 2*ackTimeout }
