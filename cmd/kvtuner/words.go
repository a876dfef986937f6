package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvtuner/kvtuner/store"
)

// writeText renders to memory and writes it in one go, without what could drive
// the terminal: the text comes from a daemon and from Prometheus.
func writeText(w io.Writer, render func(io.Writer)) error {
	var b bytes.Buffer
	render(&b)
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// oneLine keeps a text from breaking the table it is in.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func modeWords(mode string) string {
	switch mode {
	case store.ModeObserve:
		return "observe (decides and explains, publishes nothing)"
	case store.ModePropose:
		return "propose (asks before each trial)"
	}
	return mode
}

// paramsWords says what parameters mean.
func paramsWords(p store.Params) string {
	words := tokenWords(p.MinExternalReusableTokens) + "; " + gateWords(p.MaxWaitingRequests)
	if p.LoadPolicy == store.Adaptive {
		words += "; only if that costs less than computing"
	}
	return fmt.Sprintf("%s (%s)", p, words)
}

func tokenWords(t store.Tokens) string {
	switch t {
	case store.Never:
		return "never restore"
	case 1:
		return "restore whatever is reusable"
	default:
		return fmt.Sprintf("restore from %s tokens", t)
	}
}

func gateWords(waiting int) string {
	if waiting == store.NoGate {
		return "no queue limit"
	}
	return fmt.Sprintf("not while %d or more wait", waiting)
}

// arrow shows what a decision changed.
func arrow(d store.Decision) string {
	switch {
	case d.From == (store.Params{}):
		return d.To.String()
	case d.From == d.To:
		return d.To.String() + " stays"
	default:
		return d.From.String() + " -> " + d.To.String()
	}
}

// effectWords puts an interval in words; costs are lower when better.
func effectWords(i store.Interval) string {
	return fmt.Sprintf("cost of a request %s (%s to %s at %s confidence, %d block comparison(s))",
		signed(i.Estimate), signed(i.Low), signed(i.High), percent(i.Confidence), i.N)
}

func signed(share float64) string { return fmt.Sprintf("%+.1f%%", 100*share) }

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1000)/10, 'f', -1, 64) + "%"
}

// signals are those the tuner names, in the order a reader wants them, with
// their units.
var signals = []struct{ name, unit string }{
	{"costSeconds", "s"},
	{"e2eMeanSeconds", "s"},
	{"ttftMeanSeconds", "s"},
	{"withinSLO", "%"},
	{"restoreSecondsPerRequest", "s"},
	{"requestsPerSecond", "/s"},
	{"inFlight", "requests"},
	{"waiting", "requests"},
	{"externalShare", "%"},
	{"requests", "requests"},
	{"seconds", "s"},
}

// signalOrder sorts known names as above, and puts others behind, by name.
func signalOrder(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

func rank(name string) int {
	for i, s := range signals {
		if s.name == name {
			return i
		}
	}
	return len(signals)
}

func unit(name string) string {
	if i := rank(name); i < len(signals) {
		return signals[i].unit
	}
	return ""
}

// value prints a signal in its unit, without the unit.
func value(name string, v float64) string {
	if unit(name) == "%" {
		v *= 100
	}
	return number(v)
}

func withUnit(name string, v float64) string {
	return strings.TrimSpace(value(name, v) + " " + unit(name))
}

// number prints three significant digits, and whole numbers in full.
func number(v float64) string {
	size := math.Abs(v)
	switch {
	case v == math.Trunc(v), size >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case size >= 0.001:
		return strconv.FormatFloat(v, 'f', 4, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
