package bench

import (
	"strings"
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	s, err := ParseSchedule("day", []byte("# a day\n- {scenario: 8k-c64, duration: 25m}\n- scenario: mixed-c64-slow-storage\n  duration: 90s\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "day" || len(s.Phases) != 2 {
		t.Fatalf("got %q with %d phases", s.Name, len(s.Phases))
	}
	if p := s.Phases[1]; p.Scenario.Name != "mixed-c64-slow-storage" || p.Duration != 90*time.Second {
		t.Errorf("second phase is %s for %v", p.Scenario.Name, p.Duration)
	}
}

func TestParseScheduleErrors(t *testing.T) {
	ok := "- {scenario: 8k-c64, duration: 25m}\n"
	tests := []struct {
		name, raw string
		want      []string
	}{
		{"empty", "", []string{"schedule x", "0 phases", "1 to 200"}},
		{"not a list", "scenario: 8k-c64\n", []string{"want a list"}},
		{"not YAML", "- {scenario: [", []string{"want a list"}},
		{"unknown key", ok + "- {scenario: 8k-c64, duration: 1m, policy: load}\n", []string{"line 2", "policy"}},
		{"key twice", "- {scenario: 8k-c64, duration: 1m, duration: 2m}\n", []string{"duration"}},
		{"unknown scenario", ok + "- {scenario: 9k-c64, duration: 1m}\n", []string{"phase 2", `"9k-c64"`, "mixed-c64-slow-storage"}},
		{"no scenario", "- {duration: 1m}\n", []string{"phase 1", `""`}},
		{"no duration", "- {scenario: 8k-c64}\n", []string{"phase 1", `duration ""`, "25m"}},
		{"no unit", "- {scenario: 8k-c64, duration: 25}\n", []string{"phase 1", `duration "25"`, "unit"}},
		{"negative", "- {scenario: 8k-c64, duration: -5m}\n", []string{"phase 1", "-5m0s", "from 1s to 24h"}},
		{"part of a second", "- {scenario: 8k-c64, duration: 1500ms}\n", []string{"1.5s", "whole seconds"}},
		{"too long", "- {scenario: 8k-c64, duration: 25h}\n", []string{"25h0m0s"}},
		{"too many", strings.Repeat(ok, 201), []string{"201 phases"}},
		{"two documents", ok + "---\n" + ok, []string{"more than one YAML document"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseSchedule("x", []byte(tt.raw))
			mention(t, err, tt.want)
		})
	}
}

func mention(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not mention %q: %v", w, err)
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add([]byte("- {scenario: 8k-c64, duration: 25m}\n"))
	f.Add([]byte("- &a {scenario: 1k-c1, duration: 1s}\n- *a\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := ParseSchedule("f", raw)
		if err != nil {
			return
		}
		o := small()
		o.Scenarios, o.Duration, o.Schedule = nil, 0, &s
		if err := o.Validate(); err != nil {
			t.Errorf("accepted, but cannot be run: %v", err)
		}
	})
}
