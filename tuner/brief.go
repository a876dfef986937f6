package tuner

import (
	"strings"
	"unicode"
)

// Lengths in bytes of text from elsewhere.
const (
	mostName   = 200  // of an engine or a replica
	mostServer = 300  // of what a server said: a proxy's page does not belong into a record
	mostWhy    = 2000 // of a sentence made of such text
)

// Brief makes text from elsewhere, such as a label's value, fit for a record, a log,
// a page and a terminal: one line, nothing that drives a terminal or turns text
// around, and at most so many bytes.
func Brief(text string, most int) string {
	cut := len(text) > most
	if cut {
		text = text[:most]
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if cut {
		return text + "..."
	}
	return text
}
