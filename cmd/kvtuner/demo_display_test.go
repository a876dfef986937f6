package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/lab"
	"github.com/kvtuner/kvtuner/store"
)

// watched is a display of a demo, told n steps of a run with one decision.
func watched(t *testing.T, d *display, n int) {
	t.Helper()
	params := store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}
	for i := range n {
		p := lab.Progress{
			Elapsed: time.Duration(i+1) * 15 * time.Second, Total: time.Hour, Params: params,
			Second: fleet.Second{Requests: 10 + i%3, TTFT: float64(2 + i)},
		}
		if i == 1 {
			p.Trial = &store.Trial{Candidate: store.Params{MinExternalReusableTokens: store.Never}}
			p.Decision = &store.Decision{Kind: store.KindTrial, From: params, To: p.Trial.Candidate, Reason: "a reason that\n\x1b[2J goes on " + strings.Repeat("and on ", 40)}
		}
		d.show(p)
	}
}

func TestPictureIsRedrawnInPlace(t *testing.T) {
	phases, err := demoPhases(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := &display{w: &out, inPlace: true, width: 80, seed: 1, phases: phases}
	watched(t, d, 3)
	pictures := strings.Split(out.String(), "\x1b[7A")
	if len(pictures) != 3 {
		t.Fatalf("%d pictures, want 3 that each go back over the 7 lines of the one before", len(pictures))
	}
	lines := strings.Split(strings.TrimSuffix(pictures[2], "\n"), "\n")
	if len(lines) != 7 {
		t.Errorf("%d lines, want 7", len(lines))
	}
	for _, l := range lines {
		text, ok := strings.CutPrefix(l, "\r\x1b[K")
		if !ok || strings.Contains(text, "\x1b") || utf8.RuneCountInString(text) > 79 {
			t.Errorf("line may not clear, fit or be free of control characters: %q", l)
		}
	}
	for _, want := range []string{"0:00:45 of 1:00:00", "phase 1 of 5", "restore from 1024 tokens", "11.0 requests/s", "0:00:30 trial: a reason that"} {
		if !strings.Contains(pictures[2], want) {
			t.Errorf("picture lacks %q:\n%s", want, pictures[2])
		}
	}
}

func TestPlainLinesTellPhasesAndDecisions(t *testing.T) {
	phases, err := demoPhases(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	watched(t, newDisplay(&out, 1, phases), 3)
	want := fmt.Sprintf("0:00:00  phase 1 of 5, 8k-c32: %s\n0:00:30    trial 1024+8 -> inf+0\n", phases[0].Note)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestSparkline(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	for _, tt := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{5}, "▁ 5.0/s"},
		{[]float64{0, 1, 7}, "▁▂█ 7.0/s"},
		{[]float64{3, 3}, "▁▁ 3.0/s"},
	} {
		got := strings.Join(strings.Fields(sparkline(tt.values, "%.1f/s")), " ")
		if got != tt.want {
			t.Errorf("%v is drawn as %q, want %q", tt.values, got, tt.want)
		}
	}
}

func TestDemoPhasesShareAnyDuration(t *testing.T) {
	for _, total := range []time.Duration{demoMinDuration, 61 * time.Second, time.Hour, demoDuration, demoMaxDuration} {
		phases, err := demoPhases(total)
		if err != nil {
			t.Fatal(err)
		}
		var sum time.Duration
		for _, p := range phases {
			if p.Duration < time.Second || p.Duration%time.Second != 0 {
				t.Errorf("%v: phase %s lasts %v", total, p.Name, p.Duration)
			}
			sum += p.Duration
		}
		if sum != total {
			t.Errorf("phases of %v last %v", total, sum)
		}
	}
}
