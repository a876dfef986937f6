package picture

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps values to 0 (foot) to 1 (head).
type axis struct {
	at    func(float64) float64
	ticks []float64
}

// linear from low, which is 0 or below, to top. Minutes are round where seconds are
// many.
func linear(low, top float64, unit string) axis {
	whole := 1.
	if unit == "s" && top > 120 {
		whole = 60
	}
	step := whole * round((top-low)/4/whole)
	from, to := math.Floor(low/step+1e-9), max(1, math.Ceil(top/step-1e-9))
	a := axis{at: func(v float64) float64 { return (v/step - from) / (to - from) }}
	for i := from; i <= to; i++ {
		a.ticks = append(a.ticks, i*step)
	}
	return a
}

// round up to 1, 2 or 5 times a power of ten.
func round(v float64) float64 {
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

// symlog is linear up to 1 and logarithmic, base 2, beyond.
func symlog(top float64) axis {
	height := func(v float64) float64 {
		if v <= 1 {
			return v
		}
		return 1 + math.Log2(v)
	}
	end := height(top) + 1
	a := axis{at: func(v float64) float64 { return height(v) / end }}
	for _, v := range []float64{0, 8, 64, 512, 4096, 32768} {
		if v <= top {
			a.ticks = append(a.ticks, v)
		}
	}
	return a
}

// shown is a value in its unit, as Grafana abbreviates it.
func shown(v float64, unit string) string {
	switch unit {
	case "s":
		return duration(v)
	case "percentunit":
		return digits(100*v) + "%"
	case "Bps":
		return thousands(v, "B/s")
	case "reqps":
		return digits(v) + " req/s"
	}
	return thousands(v, "")
}

func duration(v float64) string {
	switch {
	case v == 0:
		return "0 s"
	case math.Abs(v) < 1e-3:
		return digits(v*1e6) + " µs"
	case math.Abs(v) < 1:
		return digits(v*1e3) + " ms"
	case math.Abs(v) < 120:
		return digits(v) + " s"
	}
	return digits(v/60) + " min"
}

func thousands(v float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T"}
	i := 0
	for ; math.Abs(v) >= 1000 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	if unit == "" {
		return digits(v) + prefixes[i]
	}
	return digits(v) + " " + prefixes[i] + unit
}

func digits(v float64) string {
	f, err := strconv.ParseFloat(fmt.Sprintf("%.3g", v), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
