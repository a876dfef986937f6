package bench

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/tuner"
)

// DefaultReference is the published fixed pair that others are compared with.
const DefaultReference = "static:1024+8"

const (
	maxSeeds    = 1000
	maxParallel = 1024
	maxScrape   = 5 * time.Minute
)

// Options are the matrix to run.
type Options struct {
	// Scenarios by name, each run for Duration from a warm start of its own; or
	// a Schedule instead.
	Scenarios []string
	Duration  time.Duration
	Schedule  *Schedule
	// Trace is replayed for Duration instead of scenarios, as scenario
	// trace:<TraceName>.
	Trace     *fleet.Trace
	TraceName string
	// Profile is the deployment; nil is the published one.
	Profile *fleet.Profile
	// Policies by name: load, recompute, static:<tokens>+<waiting>,
	// best-static, tuned, adaptive, climb, oracle.
	Policies []string
	// Seeds is how many seeds each pair of scenario and policy runs with,
	// starting at FirstSeed. All policies meet the same arrivals of a seed.
	Seeds     int
	FirstSeed uint64
	// Reference is the policy that paired differences are against. Empty is
	// DefaultReference where it is among the policies, else no differences.
	Reference string
	// Scrape interval of the embedded Prometheus.
	Scrape time.Duration
	// Parallel is the number of runs at a time.
	Parallel int
	// Adjust changes the settings of tuners, if not nil.
	Adjust func(*tuner.Settings)
	// Progress is told each finished run, one at a time, if not nil.
	Progress func(done, total int, what string)
}

// Validate names what is wrong, its value, and what is allowed.
func (o Options) Validate() error {
	_, err := o.plan()
	return err
}

// plan is a checked matrix.
type plan struct {
	tracks    []track
	policies  []choice
	seeds     []uint64
	reference string
	scrape    time.Duration
	parallel  int
	adjust    func(*tuner.Settings)
}

// track is what a fleet goes through: one scenario, or the phases of a schedule.
type track struct {
	name     string
	schedule bool
	phases   []lab.Phase
}

func (o Options) plan() (plan, error) {
	tracks, trackErr := o.tracks()
	policies, policyErr := parsePolicies(o.Policies)
	if err := errors.Join(trackErr, policyErr, o.limits()); err != nil {
		return plan{}, err
	}
	reference, err := o.reference(policies)
	if err != nil {
		return plan{}, err
	}
	p := plan{tracks: tracks, policies: policies, reference: reference, scrape: o.Scrape, parallel: o.Parallel, adjust: o.Adjust}
	for i := range o.Seeds {
		p.seeds = append(p.seeds, o.FirstSeed+uint64(i))
	}
	return p, nil
}

func (o Options) limits() error {
	var errs []error
	if o.Seeds < 1 || o.Seeds > maxSeeds {
		errs = append(errs, fmt.Errorf("seeds %d: want 1 to %d", o.Seeds, maxSeeds))
	}
	if o.Scrape < time.Second || o.Scrape > maxScrape || o.Scrape%time.Second != 0 {
		errs = append(errs, fmt.Errorf("scrape interval %v: want whole seconds from 1s to %v", o.Scrape, maxScrape))
	}
	if o.Parallel < 1 || o.Parallel > maxParallel {
		errs = append(errs, fmt.Errorf("parallel %d: want 1 to %d runs at a time", o.Parallel, maxParallel))
	}
	return errors.Join(errs...)
}

func (o Options) tracks() ([]track, error) {
	tracks, err := o.namedTracks()
	if err != nil {
		return nil, err
	}
	for _, t := range tracks {
		for _, p := range t.phases {
			if err := p.Scenario.Validate(); err != nil {
				return nil, err
			}
		}
	}
	return tracks, nil
}

func (o Options) namedTracks() ([]track, error) {
	profile := fleet.Published()
	if o.Profile != nil {
		profile = *o.Profile
	}
	if o.Schedule != nil {
		phases, err := o.Schedule.on(profile)
		return []track{{name: o.Schedule.Name, schedule: true, phases: phases}}, err
	}
	if err := checkDuration(o.Duration); err != nil {
		return nil, err
	}
	if o.Trace != nil {
		s := fleet.Scenario{Name: "trace:" + o.TraceName, Profile: profile, Workload: fleet.Workload{Trace: o.Trace}}
		return []track{{name: s.Name, phases: []lab.Phase{{Scenario: s, Duration: o.Duration}}}}, nil
	}
	var tracks []track
	seen := map[string]bool{}
	for _, name := range o.Scenarios {
		s, err := fleet.ByNameOn(profile, name)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("scenario %q is listed twice", name)
		}
		seen[name] = true
		tracks = append(tracks, track{name: name, phases: []lab.Phase{{Scenario: s, Duration: o.Duration}}})
	}
	if len(tracks) == 0 {
		return nil, errors.New("scenarios: none given; name at least one, or a schedule")
	}
	return tracks, nil
}

func (o Options) reference(policies []choice) (string, error) {
	want := o.Reference
	if want == "" {
		want = DefaultReference
	}
	var names []string
	for _, c := range policies {
		if c.name == want {
			return want, nil
		}
		names = append(names, c.name)
	}
	if o.Reference == "" {
		return "", nil
	}
	return "", fmt.Errorf("reference %q is not among the policies: %s", o.Reference, strings.Join(names, ", "))
}
