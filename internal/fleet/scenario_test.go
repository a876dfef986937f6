package fleet

import (
	"strings"
	"testing"
)

func TestEveryNameIsAScenario(t *testing.T) {
	for _, name := range append(Names(), "8k-c4", "1k-c4096") {
		s, err := ByName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Validate(); err != nil || s.Name != name {
			t.Errorf("%s: named %q, %v", name, s.Name, err)
		}
	}
}

func TestUnknownNameSaysWhatIsAllowed(t *testing.T) {
	for _, name := range []string{"", "3k-c64", "8k-c0", "8k-c", "8k-c4097", "8k-c64 ", "bursts", "8K-C64"} {
		_, err := ByName(name)
		if err == nil {
			t.Errorf("%q was accepted", name)
			continue
		}
		for _, allowed := range []string{"1k, 2k, 4k or 8k", "mixed-c64-slow-storage", "8k-bursts"} {
			if !strings.Contains(err.Error(), allowed) {
				t.Errorf("%q: error %q does not name %s", name, err, allowed)
			}
		}
	}
}

func TestVariantsChangeTheirParameterOnly(t *testing.T) {
	base := Published()
	slow := base.SlowStorage(4)
	if slow.WriteGiBps != base.WriteGiBps/4 || slow.ReadGiBps != base.ReadGiBps/4 {
		t.Errorf("slow storage writes at %v, reads at %v; want a quarter of %v, %v", slow.WriteGiBps, slow.ReadGiBps, base.WriteGiBps, base.ReadGiBps)
	}
	if slow.PrefillPerToken != base.PrefillPerToken {
		t.Error("slow storage changed prefill")
	}
	if got := base.PrefillCost(3).PrefillPerToken; got != 3*base.PrefillPerToken {
		t.Errorf("dear prefill costs %v a token; want three times %v", got, base.PrefillPerToken)
	}
}

func TestWorkloadRefusals(t *testing.T) {
	cases := map[string]func(*Scenario){
		"at least one class":     func(s *Scenario) { s.Workload.Prefixes = nil },
		"both must be positive":  func(s *Scenario) { s.Workload.Prefixes[0].Weight = 0 },
		"too small for a prefix": func(s *Scenario) { s.Workload.CorpusTokens = 100 },
		"new tokens: 0":          func(s *Scenario) { s.Workload.NewTokens = 0 },
		"output tokens: -1":      func(s *Scenario) { s.Workload.OutputTokens = -1 },
		"streams: -1":            func(s *Scenario) { s.Workload.Streams = -1 },
		"on rate 0":              func(s *Scenario) { s.Workload.Streams = 0 },
		"not a multiple":         func(s *Scenario) { s.Workload.Prefixes[0].Tokens = 1000 },
		"does not fit the profile's gpuCacheTokens": func(s *Scenario) { s.Profile.GPUCacheTokens = 1024 },
		"replicas: 0 is outside":                    func(s *Scenario) { s.Profile.Replicas = 0 },
		"4194304 different prefixes on 64 engines: want at most 16777216": func(s *Scenario) {
			s.Profile.Replicas = 64
			s.Workload.Prefixes[0].Count = maxPrefixes
		},
		"off rate 3": func(s *Scenario) {
			s.Workload.Streams = 0
			s.Workload.Arrivals = Arrivals{OnRate: 2, OffRate: 3, On: 1}
		},
		"on phase 0s must be posi": func(s *Scenario) { s.Workload.Streams = 0; s.Workload.Arrivals = Arrivals{OnRate: 2} },
	}
	for want, spoil := range cases {
		s, err := ByName("1k-c4")
		if err != nil {
			t.Fatal(err)
		}
		spoil(&s)
		_, err = New(Options{Scenario: s, Policy: noPolicy{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	s, _ := ByName("1k-c4")
	if _, err := New(Options{Scenario: s}); err == nil {
		t.Error("a fleet without a policy was built")
	}
}

// A scenario is of the deployment it is built on, and what is slow about it is
// slower than that.
func TestScenariosOfAnotherDeployment(t *testing.T) {
	p := Published()
	p.Name, p.WriteGiBps = "mine", 8
	for _, name := range Names() {
		s, err := ByNameOn(p, name)
		if err != nil || s.Profile.Name != "mine" || s.Name != name {
			t.Errorf("%s: %v on %s, %v", name, s.Name, s.Profile.Name, err)
		}
	}
	if s, _ := ByNameOn(p, "8k-c32-slow-storage"); s.Profile.WriteGiBps != 2 {
		t.Errorf("slow storage writes %v GiB/s; want a quarter of 8", s.Profile.WriteGiBps)
	}
}
