package report

import (
	"math"
	"strconv"

	"github.com/kvtuner/kvtuner/store"
)

// scale maps values to a vertical position within a panel: 0 is its foot, 1 its
// head.
type scale struct {
	at    func(float64) float64
	ticks []tick
}

type tick struct {
	Value float64
	Label string
}

// linear runs from 0 to a round number not below top.
func linear(top float64) scale {
	step := roundStep(top / 4)
	count := max(1, math.Ceil(top/step-1e-9))
	end := step * count
	s := scale{at: func(v float64) float64 { return v / end }}
	for i := 0.0; i <= count; i++ {
		s.ticks = append(s.ticks, tick{step * i, plain(step * i)})
	}
	return s
}

// roundStep is the smallest of 1, 2, 5 times a power of ten not below v.
func roundStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logSeconds is a logarithmic scale of durations with room at both ends, and at
// least three ticks where round numbers allow it.
func logSeconds(low, high float64) scale {
	if !(low > 0) || !(high >= low) {
		low, high = 0.1, 1
	}
	from, to := math.Log10(low*0.9), math.Log10(high*1.1)
	if to-from < 0.5 {
		middle := (from + to) / 2
		from, to = middle-0.25, middle+0.25
	}
	s := scale{at: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
	for _, digits := range [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 2, 3, 4, 6, 8}} {
		s.ticks = logTicks(from, to, digits)
		if len(s.ticks) >= 3 {
			break
		}
	}
	return s
}

// logTicks are the digits times powers of ten between 10^from and 10^to.
func logTicks(from, to float64, digits []float64) []tick {
	var ticks []tick
	for e := math.Floor(from); e <= to; e++ {
		for _, digit := range digits {
			v := digit * math.Pow(10, e)
			if at := math.Log10(v); at >= from && at <= to {
				ticks = append(ticks, tick{v, shortSeconds(v)})
			}
		}
	}
	return ticks
}

func shortSeconds(v float64) string {
	if v < 0.9995 {
		return plain(math.Round(v*1e6)/1e3) + " ms"
	}
	return plain(math.Round(v*1e3)/1e3) + " s"
}

// tokenScale is logarithmic from 1, with "inf" as a step of its own on top.
func tokenScale(used []store.Params) scale {
	top := 13.0 // 8192
	for _, p := range used {
		if p.MinExternalReusableTokens != store.Never {
			top = max(top, math.Log2(float64(p.MinExternalReusableTokens)))
		}
	}
	s := ended(top, 2)
	for _, t := range []float64{1, 64, 1024, 8192} {
		s.ticks = append(s.ticks, tick{t, plain(t)})
	}
	s.ticks = append(s.ticks, tick{math.Inf(1), "inf"})
	return s
}

// waitingScale is logarithmic from 1, with "off" as a step of its own on top.
func waitingScale(used []store.Params) scale {
	top := 4.0 // 16
	for _, p := range used {
		if p.MaxWaitingRequests != store.NoGate {
			top = max(top, math.Log2(float64(p.MaxWaitingRequests)))
		}
	}
	s := ended(top, 1.2)
	for _, w := range []float64{1, 4, 16} {
		s.ticks = append(s.ticks, tick{w, plain(w)})
	}
	s.ticks = append(s.ticks, tick{math.Inf(1), "off"})
	return s
}

// ended is log2 from 1 to 2^top, and infinity a gap above.
func ended(top, gap float64) scale {
	const margin = 0.6
	height := margin + top + gap + margin
	return scale{at: func(v float64) float64 {
		if math.IsInf(v, 1) {
			return (margin + top + gap) / height
		}
		return (margin + math.Log2(v)) / height
	}}
}

// tokensOf and waitingOf are thresholds as the scales take them.
func tokensOf(p store.Params) float64 {
	if p.MinExternalReusableTokens == store.Never {
		return math.Inf(1)
	}
	return float64(p.MinExternalReusableTokens)
}

func waitingOf(p store.Params) float64 {
	if p.MaxWaitingRequests == store.NoGate {
		return math.Inf(1)
	}
	return float64(p.MaxWaitingRequests)
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
