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
	namedBuilds = map[string]func() Scenario{
		"mixed-c64":              func() Scenario { return Scenario{Profile: Published(), Workload: mixed(64)} },
		"mixed-c64-slow-storage": func() Scenario { return Scenario{Profile: Published().SlowStorage(4), Workload: mixed(64)} },
		"mixed-c64-dear-prefill": func() Scenario { return Scenario{Profile: Published().PrefillCost(3), Workload: mixed(64)} },
		"8k-c32-slow-storage":    func() Scenario { return Scenario{Profile: Published().SlowStorage(4), Workload: cell(8192, 32)} },
		"4k-c64-cheap-prefill":   func() Scenario { return Scenario{Profile: Published().PrefillCost(1. / 3), Workload: cell(4096, 64)} },
		"4k-bursts":              func() Scenario { return Scenario{Profile: Published(), Workload: bursts(4096, 18, 6)} },
		"8k-bursts":              func() Scenario { return Scenario{Profile: Published(), Workload: bursts(8192, 13, 4)} },
	}
)

// ByName builds a scenario: a cell "<prefix>-c<streams>" such as "8k-c64", or
// one of Names. An unknown name is an error that lists what is allowed.
func ByName(name string) (Scenario, error) {
	if build, ok := namedBuilds[name]; ok {
		s := build()
		s.Name = name
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
	return Scenario{Name: name, Profile: Published(), Workload: cell(kilo*1024, streams)}, nil
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
	w := publishedWorkload(PrefixClass{1024, 1}, PrefixClass{2048, 1}, PrefixClass{4096, 1}, PrefixClass{8192, 1})
	w.Streams = streams
	return w
}

// bursts alternates 20 s above what the fleet can serve with 40 s well below.
func bursts(prefix int, on, off float64) Workload {
	w := publishedWorkload(PrefixClass{Tokens: prefix, Weight: 1})
	w.Arrivals = Arrivals{OnRate: on, OffRate: off, On: 20 * time.Second, Off: 40 * time.Second}
	return w
}
