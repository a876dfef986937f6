package picture

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
)

func TestValuesInTheirUnits(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "s", "0 s"}, {0.0123, "s", "12.3 ms"}, {-0.5, "s", "-500 ms"}, {600, "s", "10 min"},
		{0.257, "percentunit", "25.7%"}, {1.5e9, "Bps", "1.5 GB/s"}, {8.75, "reqps", "8.75 req/s"}, {16384, "short", "16.4k"},
	} {
		if got := shown(c.v, c.unit); got != c.want {
			t.Errorf("%v in %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestAxesHoldWhatIsDrawn(t *testing.T) {
	for _, c := range []struct {
		low, top float64
		unit     string
		want     []float64
	}{
		{0, 7.3, "short", []float64{0, 2, 4, 6, 8}},
		{-3.5, 0.6, "s", []float64{-4, -2, 0, 2}},
		{0, 800, "s", []float64{0, 300, 600, 900}},
		{0, 0, "short", []float64{0, 1}},
	} {
		a := linear(c.low, c.top, c.unit)
		if diff := cmp.Diff(c.want, a.ticks); diff != "" {
			t.Errorf("%v to %v: %s", c.low, c.top, diff)
		}
		if a.at(c.low) < 0 || a.at(c.top) > 1 {
			t.Errorf("%v to %v lies outside: %v to %v", c.low, c.top, a.at(c.low), a.at(c.top))
		}
	}
}

func TestStackedValuesStandOnEachOther(t *testing.T) {
	one := func(v ...float64) series {
		var s series
		for i, x := range v {
			s.points = append(s.points, model.SamplePair{Timestamp: model.Time(i), Value: model.SampleValue(x)})
		}
		return s
	}
	feet, low, top := stack([]series{one(1, 2), one(3, 4)}, true)
	if diff := cmp.Diff(map[model.Time]float64{0: 1, 1: 2}, feet[1]); diff != "" {
		t.Error(diff)
	}
	if low != 0 || top != 6 {
		t.Errorf("they reach from %v to %v, not from 0 to 6", low, top)
	}
}
