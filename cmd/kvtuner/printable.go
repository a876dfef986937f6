package main

import (
	"strconv"
	"strings"
	"unicode"
)

// printable spells out control characters other than newlines, so that text
// from elsewhere cannot drive the terminal.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
	}
	return b.String()
}
