package main

import (
	"cmp"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// isTerminal tells whether text written to w can be redrawn in place.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is the number of columns of w, or otherwise if w is no terminal.
func terminalWidth(w io.Writer, otherwise int) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return otherwise
}

// speaksUTF8 tells whether the locale's characters are UTF-8. Without a locale they
// are ASCII.
func speaksUTF8() bool {
	locale := strings.ToLower(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
