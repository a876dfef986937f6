package main

import (
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	const known = `{"name":"a.org/x","version":"v1.2.0","evidence":{"licenses":[{"license":{"id":"MIT"}},{"license":{"name":"Own"}}]}},{"name":"std","version":"go1.26"}`
	var out strings.Builder
	if err := list(strings.NewReader(`{"components":[`+known+`]}`), &out); err != nil || out.String() != "a.org/x  v1.2.0  MIT, Own\nstd      go1.26  BSD-3-Clause\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := list(strings.NewReader(`{"components":[{"name":"b.org/y"}]}`), &out); err != nil || !strings.Contains(out.String(), "not recognised") {
		t.Errorf("a module without a licence: %v\n%s", err, out.String())
	}
	if err := list(strings.NewReader("{"), &out); err == nil {
		t.Error("no document is accepted")
	}
}
