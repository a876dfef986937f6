package bench

import (
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/internal/fleet"
)

// small is a matrix that takes no time.
func small() Options {
	return Options{
		Scenarios: []string{"1k-c4"}, Duration: 20 * time.Second, Policies: []string{"load", "static:1024+8"},
		Seeds: 2, FirstSeed: 1, Scrape: 5 * time.Second, Parallel: 2,
	}
}

func TestProfileAndTraceMakeTheTracks(t *testing.T) {
	p := fleet.Published()
	p.Name, p.BlockTokens = "mine", 16
	day, err := ParseSchedule("day", []byte("- {scenario: 1k-c4, duration: 5s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	trace := &fleet.Trace{Requests: []fleet.TraceRequest{{PrefixTokens: 64, NewTokens: 1, OutputTokens: 1}}}
	for want, change := range map[string]func(*Options){
		"1k-c4":      func(*Options) {},
		"day":        func(o *Options) { o.Schedule = &day },
		"trace:mine": func(o *Options) { o.Trace, o.TraceName = trace, "mine" },
	} {
		o := small()
		o.Profile = &p
		change(&o)
		got, err := o.plan()
		if err != nil || len(got.tracks) != 1 || got.tracks[0].name != want || got.tracks[0].phases[0].Scenario.Profile.Name != "mine" {
			t.Errorf("%+v, %v; want %s on the profile", got.tracks, err, want)
		}
	}
	p.BlockTokens = 48
	o := small()
	o.Profile = &p
	mention(t, o.Validate(), []string{`"1k-c4"`, "1024 tokens is not a multiple of the profile's blockTokens, 48"})
}

func TestOptionErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"unknown scenario", func(o *Options) { o.Scenarios = []string{"9k-c64"} }, []string{`"9k-c64"`, "8k-bursts"}},
		{"no scenario", func(o *Options) { o.Scenarios = nil }, []string{"scenarios", "at least one"}},
		{"scenario twice", func(o *Options) { o.Scenarios = []string{"1k-c4", "1k-c4"} }, []string{`"1k-c4"`, "twice"}},
		{"unknown policy", func(o *Options) { o.Policies = []string{"static"} }, []string{`"static"`, "best-static", "oracle"}},
		{"bad pair", func(o *Options) { o.Policies = []string{"static:0+8"} }, []string{"static:0+8", "1 or more"}},
		{"no policy", func(o *Options) { o.Policies = nil }, []string{"policies", "static:<tokens>+<waiting>"}},
		{"policy twice", func(o *Options) { o.Policies = []string{"load", "load"} }, []string{`"load"`, "twice"}},
		{"no duration", func(o *Options) { o.Duration = 0 }, []string{"duration 0s", "from 1s to 24h"}},
		{"no seeds", func(o *Options) { o.Seeds = 0 }, []string{"seeds 0", "1 to 1000"}},
		{"many seeds", func(o *Options) { o.Seeds = 1001 }, []string{"seeds 1001"}},
		{"scrape", func(o *Options) { o.Scrape = 500 * time.Millisecond }, []string{"scrape interval 500ms", "from 1s to 5m"}},
		{"parallel", func(o *Options) { o.Parallel = 0 }, []string{"parallel 0"}},
		{"reference that is not run", func(o *Options) { o.Reference = "recompute" }, []string{`"recompute"`, "load, static:1024+8"}},
		{"several at once", func(o *Options) { o.Seeds, o.Parallel = 0, -1 }, []string{"seeds 0", "parallel -1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := small()
			tt.change(&o)
			mention(t, o.Validate(), tt.want)
		})
	}
	if err := small().Validate(); err != nil {
		t.Errorf("sound options: %v", err)
	}
}
