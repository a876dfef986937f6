package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/preflight"
)

// marks are what findings begin with: legible without colour, and to a screen
// reader.
var marks = map[tuner.Level]string{tuner.Fine: "ok", tuner.Skipped: "-", tuner.Warning: "WARN", tuner.Failure: "FAIL"}

func writeReport(w io.Writer, r preflight.Report, width textWidth) {
	fmt.Fprintf(w, "pool %s, as of %s\n\n", r.Pool, stamp(r.At))
	for rest := r.Findings; len(rest) > 0; {
		same := alike(rest)
		width.finding(w, "  ", rest[0])
		if len(same) > 0 {
			width.finding(w, "  ", tuner.Finding{Check: "the same", Level: tuner.Skipped, Found: strings.Join(same, ", ")})
		}
		rest = rest[1+len(same):]
	}
}

// alike are the checks after the first that were skipped for the same reason: it is
// said once.
func alike(findings []tuner.Finding) []string {
	var names []string
	for _, f := range findings[1:] {
		if f.Level != tuner.Skipped || findings[0].Level != tuner.Skipped || f.Found != findings[0].Found {
			break
		}
		names = append(names, f.Check)
	}
	return names
}

// textWidth is how wide a text is at most, in columns: as the terminal, within
// what can be read.
type textWidth int

const (
	narrowest = 50
	widest    = 100
)

func newTextWidth(w io.Writer) textWidth {
	return textWidth(min(max(terminalWidth(w, widest), narrowest), widest))
}

// finding is what was found, and under it what to do.
func (t textWidth) finding(w io.Writer, indent string, f tuner.Finding) {
	head := fmt.Sprintf("%s%-6s%-16s", indent, marks[f.Level], f.Check)
	fmt.Fprintf(w, "%s%s\n", head, t.wrapped(oneLine(f.Found), len(head)))
	if f.Fix == "" {
		return
	}
	remedy := oneLine(f.Fix)
	if f.Setting != "" {
		remedy = f.Setting + ": " + remedy
	}
	fmt.Fprintf(w, "%*s-> %s\n", len(head), "", t.wrapped(remedy, len(head)+3))
}

// wrapped breaks a text at spaces, further lines indented.
func (t textWidth) wrapped(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+length > int(t):
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String()
}
