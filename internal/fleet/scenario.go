package fleet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scenario is a deployment under a workload.
type Scenario struct {
	Name     string
	Profile  Profile
	Workload Workload
}

// maxStreams bounds what a scenario's name may ask for.
const maxStreams = 4096

var (
	cellName    = regexp.MustCompile(`^([1248])k-c([1-9][0-9]{0,3})$`)
	namedBuilds = map[string]func(Profile) (Profile, Workload){
		"mixed-c64":              func(p Profile) (Profile, Workload) { return p, mixed(64) },
		"mixed-c64-slow-storage": func(p Profile) (Profile, Workload) { return p.SlowStorage(4), mixed(64) },
		"mixed-c64-dear-prefill": func(p Profile) (Profile, Workload) { return p.PrefillCost(3), mixed(64) },
		"8k-c32-slow-storage":    func(p Profile) (Profile, Workload) { return p.SlowStorage(4), cell(8192, 32) },
		"4k-c64-cheap-prefill":   func(p Profile) (Profile, Workload) { return p.PrefillCost(1. / 3), cell(4096, 64) },
		"4k-bursts":              func(p Profile) (Profile, Workload) { return p, bursts(4096, 18, 6) },
		"8k-bursts":              func(p Profile) (Profile, Workload) { return p, bursts(8192, 13, 4) },
		"4k-poisson":             func(p Profile) (Profile, Workload) { return p, poisson(4096, 9) },
		"heavy-tail-c64":         func(p Profile) (Profile, Workload) { return p, heavyTail(64) },
		"zipf-c64":               func(p Profile) (Profile, Workload) { return p, popular(4096, 64) },
		"chat-c256":              func(p Profile) (Profile, Workload) { return p, chat(256) },
	}
)

// ByName builds a scenario of the published deployment: a cell
// "<prefix>-c<streams>" such as "8k-c64", or one of Names. An unknown name is an
// error that lists what is allowed.
func ByName(name string) (Scenario, error) { return ByNameOn(Published(), name) }

// ByNameOn builds a scenario of another deployment; what is slow, cheap or dear
// about it is so in comparison to that deployment.
func ByNameOn(p Profile, name string) (Scenario, error) {
	if build, ok := namedBuilds[name]; ok {
		s := Scenario{Name: name}
		s.Profile, s.Workload = build(p)
		return s, nil
	}
	m := cellName.FindStringSubmatch(name)
	if m == nil {
		return Scenario{}, unknownScenario(name)
	}
	kilo, _ := strconv.Atoi(m[1])    // one digit
	streams, _ := strconv.Atoi(m[2]) // at most four digits
	if streams > maxStreams {
		return Scenario{}, unknownScenario(name)
	}
	return Scenario{Name: name, Profile: p, Workload: cell(kilo*1024, streams)}, nil
}

func unknownScenario(name string) error {
	return fmt.Errorf("unknown scenario %q; allowed: <prefix>-c<streams> with prefix 1k, 2k, 4k or 8k and 1 to %d streams, or %s",
		name, maxStreams, strings.Join(special(), ", "))
}

// Names lists the scenarios by name: the published cells, then the others. Any
// other count of streams is allowed, too.
func Names() []string {
	var names []string
	for _, prefix := range []string{"1k", "2k", "4k", "8k"} {
		for _, streams := range []int{16, 32, 64} {
			names = append(names, fmt.Sprintf("%s-c%d", prefix, streams))
		}
	}
	return append(names, special()...)
}

func special() []string {
	var names []string
	for name := range namedBuilds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// publishedWorkload has what all published runs share.
func publishedWorkload(classes ...PrefixClass) Workload {
	return Workload{Prefixes: classes, CorpusTokens: 1 << 21, NewTokens: 256, OutputTokens: 128}
}

// cell is the workload of a published cell.
func cell(prefix, streams int) Workload {
	w := publishedWorkload(PrefixClass{Tokens: prefix, Weight: 1})
	w.Streams = streams
	return w
}

// mixed draws the four published prefix lengths equally often.
func mixed(streams int) Workload {
	w := publishedWorkload(
		PrefixClass{Tokens: 1024, Weight: 1}, PrefixClass{Tokens: 2048, Weight: 1},
		PrefixClass{Tokens: 4096, Weight: 1}, PrefixClass{Tokens: 8192, Weight: 1})
	w.Streams = streams
	return w
}

// bursts alternates 20 s above what the fleet can serve with 40 s well below.
func bursts(prefix int, on, off float64) Workload {
	w := publishedWorkload(PrefixClass{Tokens: prefix, Weight: 1})
	w.Arrivals = Arrivals{OnRate: on, OffRate: off, On: 20 * time.Second, Off: 40 * time.Second}
	return w
}

// poisson arrives at a constant rate, below what the fleet can serve.
func poisson(prefix int, rate float64) Workload {
	w := publishedWorkload(PrefixClass{Tokens: prefix, Weight: 1})
	w.Arrivals = Poisson(rate)
	return w
}

// heavyTail has lengths from a few hundred tokens to 20,000, half of them under
// 2048, in a corpus of about the published size.
func heavyTail(streams int) Workload {
	lengths := HeavyTail{Quantile: Lognormal(2048, 1.2), Classes: 16, Prefixes: 32, Block: 64, Longest: 65536}
	w := publishedWorkload(lengths.Mix()...)
	w.Streams = streams
	return w
}

// popular asks for some prefixes of a corpus four times the published one far
// more often than for others.
func popular(prefix, streams int) Workload {
	w := publishedWorkload(PrefixClass{Tokens: prefix, Weight: 1})
	w.CorpusTokens *= 4
	w.Zipf = 1
	w.Streams = streams
	return w
}

// chat talks about documents of 4096 tokens, with 20 s to think between turns:
// more context than GPUs hold.
func chat(streams int) Workload {
	return Workload{
		NewTokens: 256, OutputTokens: 128, Streams: streams, Think: 20 * time.Second,
		Chat: &Chat{Turns: 8, OpeningTokens: 4096, MaxTokens: 16384},
	}
}
