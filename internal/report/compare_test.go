package report

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWholeComparison(t *testing.T) {
	want := Comparison{
		Title:    "whole run",
		Measures: []string{"throughput", "mean TTFT", "p99 TTFT", "mean end-to-end"},
		Lines: []Line{
			{"tuned", []Cell{{"10.00/s", "0.0%", ""}, {"400 ms", "-55.6%", "better"}, {"2.00 s", "-66.7%", "better"}, {"2.00 s", "-33.3%", "better"}}},
			{"static:1024+8", []Cell{{"10.00/s", "", ""}, {"900 ms", "", ""}, {"6.00 s", "", ""}, {"3.00 s", "", ""}}},
			{"load", []Cell{{"10.00/s", "0.0%", ""}, {"20.1 s", "×22", "worse"}, {"160 s", "×27", "worse"}, {"12.0 s", "×4.0", "worse"}}},
		},
	}
	if diff := cmp.Diff(want, made().Whole()); diff != "" {
		t.Errorf("comparison (-want +got):\n%s", diff)
	}
}

func TestByPhaseTakesEachPhase(t *testing.T) {
	all := made().ByPhase()
	if len(all) != 2 || all[1].Title != "8k-c32-slow-storage" {
		t.Fatalf("phases are %v", all)
	}
	if got := []string{all[0].Lines[0].Cells[1].Value, all[1].Lines[0].Cells[1].Value}; got[0] != "300 ms" || got[1] != "500 ms" {
		t.Errorf("mean TTFT by phase is %v", got)
	}
}

func TestTones(t *testing.T) {
	for _, tt := range []struct {
		measure        int
		own, reference float64
		text, tone     string
	}{
		{0, 10.1, 10, "+1.0%", ""},
		{0, 11, 10, "+10.0%", "better"},
		{0, 9, 10, "-10.0%", "worse"},
		{1, 1.04, 1, "+4.0%", ""},
		{1, 1.1, 1, "+10.0%", "worse"},
		{2, 0.9, 1, "-10.0%", ""},
		{2, 0.5, 1, "-50.0%", "better"},
		{3, 0.97, 1, "-3.0%", "better"},
		{3, math.NaN(), 1, nothing, ""},
	} {
		if text, tone := measures[tt.measure].against(tt.own, tt.reference); text != tt.text || tone != tt.tone {
			t.Errorf("%s of %v against %v: %q %q, want %q %q", measures[tt.measure].name, tt.own, tt.reference, text, tone, tt.text, tt.tone)
		}
	}
}

func TestWords(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{seconds(0.0123), "12 ms"}, {seconds(0.9996), "1.00 s"}, {seconds(12.34), "12.3 s"}, {seconds(123.4), "123 s"}, {seconds(math.NaN()), nothing},
		{perSecond(12.345), "12.35/s"}, {perSecond(math.Inf(1)), nothing},
		{change(-0.1234), "-12.3%"}, {change(0.0001), "0.0%"}, {change(3.2), "×4.2"}, {change(99), "×100"}, {change(math.NaN()), nothing},
		{Clock(0), "0:00:00"}, {Clock(2*time.Hour + 3*time.Minute + 4*time.Second), "2:03:04"},
		{span(150 * time.Minute), "2h30m"}, {span(2 * time.Hour), "2h"}, {span(90 * time.Second), "1m30s"}, {span(30 * time.Second), "30s"}, {span(10 * time.Minute), "10m"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
