package main

import (
	"strconv"
	"strings"
	"unicode"
)

// printable spells out control characters other than newlines, so that text
// from elsewhere cannot drive the terminal, and what the locale cannot show.
func printable(s string) string {
	utf8 := speaksUTF8()
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r) && (utf8 || r < unicode.MaxASCII):
			b.WriteRune(r)
		case ascii[r] != "":
			b.WriteString(ascii[r])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// ascii is how kvtuner's own signs are written where there is nothing but ASCII.
var ascii = map[rune]string{'±': "+/-", '→': "->", '…': "~", '–': "-", '×': "x", 'µ': "u", '≥': ">=", '≤': "<="}
