package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// nothing stands for what was not measured.
const nothing = "–"

func measured(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// seconds in the unit and precision a reader wants: "312 ms", "2.13 s", "104 s".
func seconds(v float64) string {
	switch {
	case !measured(v):
		return nothing
	case v < 0.9995:
		return fmt.Sprintf("%.0f ms", 1000*v)
	case v < 9.995:
		return fmt.Sprintf("%.2f s", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f s", v)
	default:
		return fmt.Sprintf("%.0f s", v)
	}
}

func perSecond(v float64) string {
	if !measured(v) {
		return nothing
	}
	return fmt.Sprintf("%.2f/s", v)
}

// change is a relative difference: "-12.3%", or "×4.2" from three times as much.
func change(share float64) string {
	switch {
	case !measured(share):
		return nothing
	case math.Abs(share) < 0.0005:
		return "0.0%"
	case share >= 9:
		return fmt.Sprintf("×%.0f", 1+share)
	case share >= 2:
		return fmt.Sprintf("×%.1f", 1+share)
	default:
		return fmt.Sprintf("%+.1f%%", 100*share)
	}
}

// Clock is a moment of a run as h:mm:ss.
func Clock(d time.Duration) string {
	s := int(d / time.Second)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// span is a duration without its empty parts: "2h30m".
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
