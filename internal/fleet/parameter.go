package fleet

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
)

// Source says how a parameter's value is known.
type Source string

// Sources of a parameter.
const (
	FromHardware    Source = "hardware"  // a fact of the machine or a setting of the engine
	FromPublication Source = "published" // stated with the measurements
	FromFit         Source = "fitted"    // found by calibration
)

// Parameter documents one number of a Profile.
type Parameter struct {
	// Name is the key in a profile file.
	Name string
	Unit string
	// Meaning in the physical world.
	Meaning string
	// Source of the published profile's value.
	Source Source
	// Min and Max bound plausible values; a value outside is refused.
	Min, Max float64
	// Whole numbers only.
	Whole bool

	field func(*Profile) *float64
}

// Value of the parameter in p.
func (d Parameter) Value(p Profile) float64 { return *d.field(&p) }

// Set the parameter in p.
func (d Parameter) Set(p *Profile, v float64) { *d.field(p) = v }

// Range in words.
func (d Parameter) Range() string {
	return strings.TrimSpace(fmt.Sprintf("%.10g to %.10g %s", d.Min, d.Max, d.Unit))
}

// Check that a value is possible.
func (d Parameter) Check(v float64) error {
	switch {
	case math.IsNaN(v) || v < d.Min || v > d.Max:
		return fmt.Errorf("%s: %.10g is outside %s", d.Name, v, d.Range())
	case d.Whole && v != math.Trunc(v):
		return fmt.Errorf("%s: %v is not a whole number", d.Name, v)
	}
	return nil
}

// Validate reports every value that is impossible or implausible.
func (p Profile) Validate() error {
	var errs []error
	if err := checkName(p.Name); err != nil {
		errs = append(errs, fmt.Errorf("name %w", err))
	}
	if p.Model == "" || len(p.Model) > maxText || strings.ContainsFunc(p.Model, func(r rune) bool { return !unicode.IsPrint(r) }) {
		errs = append(errs, fmt.Errorf("model %s: want 1 to %d printable characters", clip(p.Model), maxText))
	}
	if len(p.Source) > maxText {
		errs = append(errs, fmt.Errorf("source %s: want at most %d characters", clip(p.Source), maxText))
	}
	for _, d := range Parameters() {
		errs = append(errs, d.Check(d.Value(p)))
	}
	return errors.Join(errs...)
}

const maxText = 1000

// Parameters documents every number of a Profile, in the order of a file.
func Parameters() []Parameter { return parameters }

var parameters = []Parameter{
	{"replicas", "engines", "engines behind the router, all on one node", FromPublication, 1, 64, true, func(p *Profile) *float64 { return &p.Replicas }},
	{"tensorParallel", "ranks", "GPUs an engine is spread over; its offload metrics are summed over them", FromPublication, 1, 64, true, func(p *Profile) *float64 { return &p.TensorParallel }},
	{"blockTokens", "tokens", "tokens in a KV cache block", FromHardware, 1, 4096, true, func(p *Profile) *float64 { return &p.BlockTokens }},
	{"tokenBudget", "tokens", "tokens an engine step may process (chunked prefill)", FromHardware, 64, 1 << 20, true, func(p *Profile) *float64 { return &p.TokenBudget }},
	{"maxSequences", "requests", "requests an engine may run at a time", FromHardware, 1, 65536, true, func(p *Profile) *float64 { return &p.MaxSequences }},
	{"gpuCacheTokens", "tokens", "KV cache on the GPUs of one engine", FromPublication, 1024, 1e9, true, func(p *Profile) *float64 { return &p.GPUCacheTokens }},
	{"cpuCacheGiB", "GiB", "CPU tier of one engine", FromPublication, 1, 1e5, false, func(p *Profile) *float64 { return &p.CPUCacheGiB }},
	{"kvKiBPerToken", "KiB", "KV cache of one token over all ranks", FromHardware, 1, 1e5, false, func(p *Profile) *float64 { return &p.KVKiBToken }},
	{"copyGBps", "GB/s", "CPU to GPU copy bandwidth of one engine", FromHardware, 0.1, 2000, false, func(p *Profile) *float64 { return &p.CopyGBps }},
	{"copyFixed", "s", "fixed cost of a restore's copy", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.CopyFixed }},
	{"snapshotInterval", "s", "interval at which the EPP refreshes an endpoint's metrics", FromHardware, 0.001, 10, false, func(p *Profile) *float64 { return &p.SnapshotInterval }},

	{"stepBase", "s", "engine step with nothing to prefill: reading the weights", FromFit, 0.0005, 0.5, false, func(p *Profile) *float64 { return &p.StepBase }},
	{"stepPerRequest", "s", "added to a step by each decoding request", FromFit, 0, 0.01, false, func(p *Profile) *float64 { return &p.StepPerRequest }},
	{"stepPerContextToken", "s", "added to a step by each token of decoding context: reading KV", FromFit, 0, 1e-5, false, func(p *Profile) *float64 { return &p.StepPerContext }},
	{"prefillPerToken", "s", "compute of one prefill token at the start of a prompt", FromFit, 1e-7, 1e-2, false, func(p *Profile) *float64 { return &p.PrefillPerToken }},
	{"prefillGrowth", "1/token", "relative growth of prefill cost with context: attention", FromFit, 0, 1e-3, false, func(p *Profile) *float64 { return &p.PrefillGrowth }},
	{"overlapExponent", "", "norm in which base and prefill compute add: 1 one after the other, infinite in full overlap", FromFit, 1, 20, false, func(p *Profile) *float64 { return &p.OverlapExponent }},
	{"pollPerBlock", "s", "added to a step by each block of a pending lookup", FromFit, 0, 1e-3, false, func(p *Profile) *float64 { return &p.PollPerBlock }},
	{"storePerBlock", "s", "taken from later steps by each block on its way to the CPU tier", FromFit, 0, 0.1, false, func(p *Profile) *float64 { return &p.StorePerBlock }},
	{"storeDrag", "", "most a step is lengthened by stores under way, relative", FromFit, 0, 5, false, func(p *Profile) *float64 { return &p.StoreDrag }},
	{"stepInflation", "", "relative growth of a step while storage is saturated", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.StepInflation }},

	{"lookupBase", "s", "lookup, fixed part", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.LookupBase }},
	{"lookupPerBlock", "s", "lookup of one block the GPU does not hold, storage idle", FromFit, 0, 0.1, false, func(p *Profile) *float64 { return &p.LookupPerBlock }},
	{"lookupSaturated", "s", "mean added to the lookup of one block by saturated storage", FromFit, 0, 10, false, func(p *Profile) *float64 { return &p.LookupSaturated }},
	{"lookupExponent", "", "power of saturation with which that grows", FromFit, 0.5, 20, false, func(p *Profile) *float64 { return &p.LookupExponent }},
	{"lookupShape", "", "gamma shape of its tail: the smaller, the heavier", FromFit, 0.01, 10, false, func(p *Profile) *float64 { return &p.LookupShape }},
	{"lookupCrowding", "", "its growth with each other lookup outstanding on the node", FromFit, 0, 10, false, func(p *Profile) *float64 { return &p.LookupCrowding }},

	{"writeGiBps", "GiB/s", "write bandwidth of the node's shared storage", FromPublication, 0.01, 1000, false, func(p *Profile) *float64 { return &p.WriteGiBps }},
	{"writeBacklogGiB", "GiB", "writes that may be outstanding; more are dropped", FromFit, 0.1, 1e4, false, func(p *Profile) *float64 { return &p.WriteBacklogGiB }},
	{"writeShare", "", "share of newly computed tokens that is written to shared storage", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.WriteShare }},
	{"readGiBps", "GiB/s", "read bandwidth of shared storage into CPU tiers, no writes outstanding", FromFit, 1e-3, 1000, false, func(p *Profile) *float64 { return &p.ReadGiBps }},
	{"readSaturatedGiBps", "GiB/s", "the same while writes saturate it", FromFit, 1e-4, 1000, false, func(p *Profile) *float64 { return &p.ReadSaturatedGiBps }},
	{"readShape", "", "gamma shape of a read's duration: the smaller, the heavier its tail", FromFit, 0.01, 100, false, func(p *Profile) *float64 { return &p.ReadShape }},

	{"cpuRetained", "", "share of the CPU tier that keeps prefixes; the rest holds blocks on their way to storage, and suffix and output blocks", FromFit, 0.01, 1, false, func(p *Profile) *float64 { return &p.CPURetained }},
	{"cpuReported", "", "chance that the router comes to know of a prefix stored in a CPU tier", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.CPUReported }},
	{"sharedChance", "", "chance that a lookup the CPU tier cannot answer finds something on shared storage", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.SharedChance }},
	{"sharedShare", "", "share of the prefix it then finds", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.SharedShare }},

	{"routerCPUWeight", "", "worth of a visible CPU block against a GPU block in the routing score", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.RouterCPUWeight }},
	{"routerLoadWeight", "", "weight of relative load against the share of the prompt held", FromFit, 0, 10, false, func(p *Profile) *float64 { return &p.RouterLoadWeight }},
	{"routerWaitingWeight", "", "running requests one waiting request counts for in load", FromFit, 0, 100, false, func(p *Profile) *float64 { return &p.RouterWaitingWeight }},
	{"clientOverhead", "s", "network and gateway between client and engine", FromFit, 0, 1, false, func(p *Profile) *float64 { return &p.ClientOverhead }},
}
