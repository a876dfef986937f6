package main

import (
	"strings"
	"testing"

	"github.com/kvtuner/kvtuner/store"
)

// An answer to a proposal rests on that proposal's measurements, and says so.
func TestExplainWithoutEvidence(t *testing.T) {
	for kind, want := range map[store.Kind]string{
		store.KindApprove: "kvtuner history --kind propose",
		store.KindReject:  "kvtuner history --kind propose",
		store.KindPause:   "No measurements were needed",
	} {
		var text strings.Builder
		explain(&text, store.Decision{ID: "x", Kind: kind, Mode: store.ModePropose})
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s is explained as\n%s\nwant %q", kind, text.String(), want)
		}
	}
}
