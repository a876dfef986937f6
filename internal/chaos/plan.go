package chaos

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

const (
	poolName  = "chaos"
	namespace = "chaos"
	// tick is the grain of virtual time.
	tick = 5 * time.Second
	// calm is how long everything works again at the end of a schedule, so that
	// it can be seen to recover.
	calm = 15 * time.Minute
)

// plan is everything that a seed decides: a pool, its tuner, and what goes wrong.
type plan struct {
	seed      uint64
	start     time.Time
	length    time.Duration
	onDisk    bool // documents and history are files, not in memory
	inCluster bool // documents are in a ConfigMap
	replicas  int
	load      workload
	settings  tuner.Settings
	faults    []fault
}

// Dates on which virtual time begins: an ordinary Monday, and the eves of both
// changes of the clock in Berlin.
var dates = []time.Time{
	time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC),
	time.Date(2026, time.March, 28, 23, 30, 0, 0, time.UTC),
	time.Date(2026, time.October, 24, 23, 30, 0, 0, time.UTC),
}

func draw(seed uint64, disk, cluster float64) plan {
	rng := rand.New(rand.NewPCG(seed, 0x6b76)) // any constant: the stream of plans
	p := plan{
		seed: seed, start: pick(rng, dates...), replicas: 1 + rng.IntN(3),
		length: time.Duration(20+rng.IntN(101)) * time.Minute,
		onDisk: rng.Float64() < disk,
	}
	p.load = drawWorkload(rng)
	p.settings = drawSettings(rng, p.load.engines)
	for range drawCount(rng) {
		p.faults = append(p.faults, drawFault(rng, p.length))
	}
	for p.settings.Mode == tuner.Propose && len(p.faults) < 20 { // somebody has to answer
		f := drawFault(rng, p.length)
		f.kind = operator
		p.faults = append(p.faults, f)
	}
	p.drawCluster(cluster)
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	return p
}

// drawCluster moves a share of the plans into a cluster, with what goes wrong there.
// It draws from a stream of its own: the others' plans are the same without it.
func (p *plan) drawCluster(share float64) {
	rng := rand.New(rand.NewPCG(p.seed, 0x6b38))
	if p.inCluster = !p.onDisk && rng.Float64() < share; !p.inCluster {
		return
	}
	for range 1 + rng.IntN(6) {
		f := drawFault(rng, p.length)
		f.kind = pick(rng, clusterKinds...)
		p.faults = append(p.faults, f)
	}
}

// drawCount is how many things go wrong: mostly a few at once, at times a dozen,
// at times one alone.
func drawCount(rng *rand.Rand) int {
	n := 1
	for n < 16 && rng.Float64() < 0.8 {
		n++
	}
	return n
}

func drawFault(rng *rand.Rand, length time.Duration) fault {
	f := fault{kind: pick(rng, kinds...), share: 1, pick: rng.Uint64()}
	f.at = time.Duration(rng.Int64N(int64(length))).Truncate(tick)
	f.last = time.Duration(float64(30*time.Second) * pow(60, rng.Float64())).Truncate(tick)
	if rng.Float64() < 0.3 {
		f.share = 0.2 + 0.6*rng.Float64()
	}
	return f
}

func drawSettings(rng *rand.Rand, engines int) tuner.Settings {
	s := tuner.DefaultSettings()
	s.Name, s.Mode, s.Selector = poolName, tuner.Enforce, `namespace="`+namespace+`"`
	switch x := rng.Float64(); {
	case x < 0.1:
		s.Mode = tuner.Observe
	case x < 0.2:
		s.Mode = tuner.Propose
	}
	s.ScrapeInterval = pick(rng, 5*time.Second, 15*time.Second, 15*time.Second, 15*time.Second, 15*time.Second, 30*time.Second)
	if rng.Float64() < 0.5 {
		s.Endpoints = engines
	}
	if rng.Float64() < 0.4 {
		s.Bounds = store.Bounds{
			MinExternalReusableTokens: store.TokenRange{Min: pick(rng, store.Tokens(1), 100, 512), Max: pick(rng, store.Tokens(5000), 8192, store.Never)},
			MaxWaitingRequests:        store.WaitingRange{Min: pick(rng, 1, 3), Max: pick(rng, 8, 20, store.NoGate)},
		}
	}
	s.Guard.MaxExposure = pick(rng, 0.02, 0.05, 0.1, 0.3)
	s.Guard.Cooldown = pick(rng, time.Minute, 5*time.Minute)
	s.Trial.Block = pick(rng, 2*time.Minute, 150*time.Second)
	s.Trial.Washout = pick(rng, 0, 15*time.Second, 30*time.Second)
	s.Trial.MaxBlocks = 1 + rng.IntN(4)
	s.Trial.MinRequests = pick(rng, 20, 100)
	s.Search.Explore = pick(rng, time.Minute, 5*time.Minute)
	s.Search.MaxExplore = pick(rng, 10*time.Minute, time.Hour)
	s.Search.MaxStep = 1 + rng.IntN(4)
	s.Search.Step = 1 + rng.IntN(s.Search.MaxStep)
	if rng.Float64() < 0.25 {
		s.Schedule = drawCalendar(rng)
	}
	return s
}

// drawCalendar opens for a while each hour, or each day about the hour in which
// clocks change.
func drawCalendar(rng *rand.Rand) tuner.Schedule {
	return tuner.Schedule{
		Zone: pick(rng, "Europe/Berlin", "UTC"),
		Windows: []tuner.Window{{
			Start:    pick(rng, "0 * * * *", "30 * * * *", "30 2 * * *", "15 1 * * *"),
			Duration: pick(rng, 20*time.Minute, 45*time.Minute, 90*time.Minute),
		}},
	}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }
