package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
)

// Policy decides, per request, whether its engine may load KV cache from
// outside the GPU. *plugin.Policy is one. The fleet calls it from Advance only,
// at virtual times that never go back.
type Policy interface {
	// Observe tells the waiting queue of an endpoint, as the EPP refreshes it.
	Observe(endpoint string, waiting int, at time.Time)
	// ObserveRunning tells the requests running in an endpoint.
	ObserveRunning(endpoint string, running int, at time.Time)
	// Decide answers for one request routed to r.Endpoint. The request is
	// reused for the next call.
	Decide(r *plugin.Request) plugin.Decision
	// ObserveFirstToken tells the time from arrival at the EPP to the first
	// token and the prompt tokens the engine had to compute.
	ObserveFirstToken(d plugin.Decision, ttft time.Duration, computedTokens int)
	// ObserveOutput tells the output tokens of a finished request.
	ObserveOutput(d plugin.Decision, tokens int)
}

// Options configure a fleet.
type Options struct {
	Scenario Scenario
	// Seed of all randomness.
	Seed uint64
	// Policy decides for every request.
	Policy Policy
	// Start is the virtual time at which the fleet starts; the zero time is
	// replaced by the Unix epoch.
	Start time.Time
	// Cold starts with empty caches instead of warm ones.
	Cold bool
	// Deaf engines ignore that they are told not to load, as vLLM before 0.31 does:
	// what the policy decides is counted, and every request restores.
	Deaf bool
}

func (o Options) validate() error {
	if o.Policy == nil {
		return errors.New("policy: must not be nil")
	}
	return o.Scenario.Validate()
}

// Validate reports what is impossible about deployment and workload, and about
// the two together.
func (s Scenario) Validate() error {
	if err := errors.Join(s.Profile.Validate(), s.Workload.Validate()); err != nil {
		return fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	block := int(s.Profile.BlockTokens)
	for _, c := range s.Workload.Prefixes {
		if c.Tokens%block != 0 {
			return fmt.Errorf("scenario %q: prefix of %d tokens is not a multiple of the profile's blockTokens, %d", s.Name, c.Tokens, block)
		}
	}
	if n := s.Workload.prefixes(); n*int(s.Profile.Replicas) > maxPrefixNodes {
		return fmt.Errorf("scenario %q: %d different prefixes on %v engines: want at most %d prefixes times engines", s.Name, n, s.Profile.Replicas, maxPrefixNodes)
	}
	if longest := s.Workload.longestRequest(); longest > int(s.Profile.GPUCacheTokens)/block*block {
		return fmt.Errorf("scenario %q: a request of %d tokens does not fit the profile's gpuCacheTokens, %.10g", s.Name, longest, s.Profile.GPUCacheTokens)
	}
	return nil
}

// Fleet is a running simulation. It is not safe for concurrent use.
type Fleet struct {
	seed     uint64
	start    time.Time
	now      instant
	policy   Policy
	deaf     bool
	profile  Profile
	workload Workload

	// Copies of profile values in the types the hot path wants.
	blockTokens, tokenBudget int32
	maxSequences             int
	blockBytes, ranks        float64

	events   eventQueue
	requests requestPool
	replicas []replica
	names    []string
	storage  storage
	prefixes prefixTable
	mix      prefixMix

	streams    []stream
	phaseStart instant
	openEpoch  int32
	openIssued uint64
	traced     int // requests of the trace issued
	traceIDs   []int32

	arrivals, choice, service *random

	ask   plugin.Request
	count counts
	stats statistics // since the last reset
	total statistics // since New
}

// New builds a fleet at virtual time Start, with warm caches unless Cold.
func New(o Options) (*Fleet, error) { return NewContext(context.Background(), o) }

// NewContext is New until ctx ends, with whose error it then gives up: to warm the
// caches takes a while with a corpus of millions of prefixes.
func NewContext(ctx context.Context, o Options) (*Fleet, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("new fleet: %w", err)
	}
	if o.Start.IsZero() {
		o.Start = time.Unix(0, 0).UTC()
	}
	f := &Fleet{
		seed:     o.Seed,
		start:    o.Start,
		policy:   o.Policy,
		deaf:     o.Deaf,
		replicas: make([]replica, int(o.Scenario.Profile.Replicas)),
		arrivals: newRandom(o.Seed, forArrivals),
		choice:   newRandom(o.Seed, forPrefixes),
		service:  newRandom(o.Seed, forService),
	}
	f.ask.Evidence = plugin.Evidence{
		Prompts:   []plugin.PrefixMatch{{ByTier: map[string]int{}}},
		BlockSize: int(o.Scenario.Profile.BlockTokens),
	}
	f.configure(o.Scenario)
	for i := range f.replicas {
		f.names = append(f.names, fmt.Sprintf("vllm-%d", i))
		f.replicas[i].id = int32(i)
		f.replicas[i].gpu = newBlockCache(f.gpuBlocks())
		f.replicas[i].cpu = newBlockCache(f.cpuBlocks())
		f.replicas[i].metrics = newMetrics()
	}
	f.growCaches()
	if !o.Cold {
		if err := f.replayHistory(ctx); err != nil {
			return nil, fmt.Errorf("new fleet: %w", err)
		}
	}
	f.ResetStats()
	f.total = f.measure()
	f.snapshot()
	f.startClients()
	return f, nil
}

// Switch changes profile and workload at the current instant. Caches, queues
// and requests in flight stay; the number of engines and the block size cannot
// change.
func (f *Fleet) Switch(s Scenario) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	if s.Profile.Replicas != f.profile.Replicas || s.Profile.BlockTokens != f.profile.BlockTokens {
		return fmt.Errorf("switch to scenario %q: engines and block size must stay %v and %v", s.Name, f.profile.Replicas, f.profile.BlockTokens)
	}
	f.storage.advance(f.now)
	f.configure(s)
	for i := range f.replicas {
		f.replicas[i].gpu.resize(f.gpuBlocks())
		f.replicas[i].cpu.resize(f.cpuBlocks())
	}
	f.growCaches()
	f.startClients()
	return nil
}

func (f *Fleet) configure(s Scenario) {
	f.profile = s.Profile
	f.workload = s.Workload
	f.blockTokens = int32(s.Profile.BlockTokens)
	f.tokenBudget = int32(s.Profile.TokenBudget)
	f.maxSequences = int(s.Profile.MaxSequences)
	f.blockBytes = s.Profile.BlockTokens * s.Profile.KVKiBToken * 1024
	f.ranks = s.Profile.TensorParallel
	f.storage.configure(&f.profile)
	f.mix = newPrefixMix(&f.prefixes, s.Workload)
	if s.Workload.Chat != nil {
		f.prefixes.reserveChats(s.Workload.Streams)
	}
	if s.Workload.Trace != nil {
		f.traceIDs = f.prefixes.reserveTrace(s.Workload.Trace)
	}
}

func (f *Fleet) growCaches() {
	n := len(f.prefixes.tokens)
	for i := range f.replicas {
		r := &f.replicas[i]
		r.gpu.grow(n)
		r.cpu.grow(n)
		r.reported = append(r.reported, make([]bool, n-len(r.reported))...)
	}
}

func (f *Fleet) gpuBlocks() int32 { return int32(f.profile.GPUCacheTokens) / f.blockTokens }
func (f *Fleet) cpuBlocks() int32 {
	return int32(math.Min(math.MaxInt32, f.profile.CPUCacheGiB*f.profile.CPURetained*gib/f.blockBytes))
}

// blocks is the number of blocks that hold n tokens.
func (f *Fleet) blocks(n int32) int32 { return (n + f.blockTokens - 1) / f.blockTokens }

// Now is the current virtual time.
func (f *Fleet) Now() time.Time { return f.start.Add(f.now.duration()) }

// Advance runs the fleet for d of virtual time.
func (f *Fleet) Advance(d time.Duration) {
	_ = f.AdvanceContext(context.Background(), d) // which does not end
}

// eventsBetweenLooks at the context, or requests of history, take some
// milliseconds.
const eventsBetweenLooks = 1 << 14

// AdvanceContext is Advance until ctx ends, with whose error it then stops short
// of d.
func (f *Fleet) AdvanceContext(ctx context.Context, d time.Duration) error {
	until := f.now + instant(d)
	for n := 1; f.events.next() <= until; n++ {
		e := f.events.pop()
		f.passTo(e.at)
		f.handle(e)
		if n%eventsBetweenLooks == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	f.passTo(until)
	return nil
}

// passTo moves the clock.
func (f *Fleet) passTo(t instant) {
	f.stats.pass(f, t)
	f.total.pass(f, t)
	f.now = t
}

func (f *Fleet) handle(e event) {
	switch e.kind {
	case evStep:
		f.endStep(&f.replicas[e.id])
	case evArrive:
		f.arrive(e.id)
	case evLooked:
		f.finishLookup(e.id)
	case evRestored:
		f.finishRestore(e.id)
	case evIssue:
		f.issueOpen(e.id)
	case evThought:
		f.endPause(e.id)
	case evSnapshot:
		f.snapshot()
	}
}
