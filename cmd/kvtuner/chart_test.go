package main

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kvtuner/kvtuner/store"
)

func TestIntervalChart(t *testing.T) {
	for want, i := range map[string]store.Interval{
		"better -11.0% [..(=====================o=====================)..] +11.0% worse": {Low: -0.1, High: 0.1},
		"better -1.1% [........................o........................] +1.1% worse":   {},
		"better -22.0% [..(=====o====)..........|........................] +22.0% worse": {Estimate: -0.15, Low: -0.2, High: -0.1},
		"better -22.0% [........................|..................(=o)..] +22.0% worse": {Estimate: 0.19, Low: 0.17, High: 0.2},
	} {
		if got := intervalChart(i); got != want {
			t.Errorf("%+v\n got %s\nwant %s", i, got, want)
		}
	}
}

// Records come over the network: no number may break the charts.
func TestChartsTakeAnyNumber(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-1, 1), rapid.SampledFrom([]float64{0, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64}))
	rapid.Check(t, func(t *rapid.T) {
		chart := intervalChart(store.Interval{Estimate: number.Draw(t, "estimate"), Low: number.Draw(t, "low"), High: number.Draw(t, "high")})
		_, axis, _ := strings.Cut(chart, "[")
		if axis, _, _ = strings.Cut(axis, "]"); len(axis) != 2*intervalHalf+1 {
			t.Errorf("the axis is %d cells wide: %s", len(axis), chart)
		}
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Sample {
			return store.Sample{Arm: store.ArmBaseline, State: store.StateOK, Signals: map[string]float64{"waiting": number.Draw(t, "waiting")}}
		}), 1, 2*bandCells).Draw(t, "samples")
		low, high, _ := span("waiting", samples)
		cells, any := drawn().bars("waiting", store.ArmBaseline, samples, low, high)
		if !any || utf8.RuneCountInString(cells) != len(samples) {
			t.Errorf("%d cells for %d samples", utf8.RuneCountInString(cells), len(samples))
		}
	})
}

func TestNumberIsShortAndExact(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 7: "7", -3: "-3", 12345678: "12345678", 1234.5: "1234", 123.45: "123.5", 1.8888: "1.89", 0.04213: "0.0421", 1e-7: "1e-07", -0.5: "-0.5000",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

func TestLocaleSaysWhatCanBeShown(t *testing.T) {
	for _, tc := range []struct {
		all, ctype, lang string
		want             string
	}{
		{"", "", "", "a +/- b -> \\u00e9\\x1b"},
		{"", "", "de_DE.UTF-8", "a ± b → é\\x1b"},
		{"", "en_US.utf8", "C", "a ± b → é\\x1b"},
		{"C", "en_US.utf8", "de_DE.UTF-8", "a +/- b -> \\u00e9\\x1b"},
		{"", "", "de_DE.ISO-8859-1", "a +/- b -> \\u00e9\\x1b"},
	} {
		t.Setenv("LC_ALL", tc.all)
		t.Setenv("LC_CTYPE", tc.ctype)
		t.Setenv("LANG", tc.lang)
		if got := printable("a ± b → é\x1b"); got != tc.want {
			t.Errorf("%+v: got %s", tc, got)
		}
		wide := utf8.RuneCountInString(string(drawn().levels)) != len(string(drawn().levels))
		if wide != speaksUTF8() || len(drawn().levels) != 8 {
			t.Errorf("%+v: drawn with %s", tc, string(drawn().levels))
		}
	}
}
