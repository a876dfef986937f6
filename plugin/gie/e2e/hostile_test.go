//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testHostile sends what nobody sends by accident: it arrives as the framework
// alone would have it, but for the decision, or the framework refuses it.
func (f *fleet) testHostile(t *testing.T) {
	e := f.epps[0]
	before := f.goroutines(e)
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, test := range []struct {
		name, text string
		want       string // arrives, but for max_load_tokens; empty is status 400
	}{
		{"deep", with(`{"model":"m","prompt":"p"%s}`, deep(4000)), with(`{"model":"m","prompt":"p"%s}`, deep(4000))},
		{"too deep", with(`{"model":"m","prompt":"p"%s}`, deep(20000)), ``},
		{"number beyond all bounds", with(`{"model":"m","prompt":"p"%s}`, `{"max_load_tokens":1e400}`), ``},
		{"the member twice", `{"model":"m","kv_transfer_params":{"max_load_tokens":9},"prompt":"p","kv_transfer_params":{"b":1}}`, `{"model":"m","prompt":"p","kv_transfer_params":{"b":1}}`},
		{"the field twice", with(`{"model":"m","prompt":"p"%s}`, `{"max_load_tokens":9,"max_load_tokens":8}`), with(`{"model":"m","prompt":"p"%s}`, `{}`)},
		{"not UTF-8", with("{\"model\":\"m\",\"prompt\":\"\xff\xfe\"%s}", `{"b":"`+"\xc0"+`"}`), with(`{"model":"m","prompt":"\ufffd\ufffd"%s}`, `{"b":"\ufffd"}`)},
		{"tiers that are none", with(`{"model":"m","prompt":"p"%s}`, `{"kv_load_tiers":[`+strings.Repeat(`{"medium":{}},`, 1000)+`7]}`), with(`{"model":"m","prompt":"p"%s}`, `{"kv_load_tiers":[`+strings.Repeat(`{"medium":{}},`, 1000)+`7]}`)},
		{"10 MiB", `{"model":"m","prompt":"` + strings.Repeat("wort ", 2<<20) + `"}`, `{"model":"m","prompt":"` + strings.Repeat("wort ", 2<<20) + `"}`},
		{"many prompts", `{"model":"m","prompt":["` + strings.Repeat(`","`, 1<<18) + `"]}`, `{"model":"m","prompt":["` + strings.Repeat(`","`, 1<<18) + `"]}`},
	} {
		f.part(test.name, func(t *testing.T) {
			if test.want == "" {
				f.refuses(t, e, test.text)
				return
			}
			a := f.sendOnce(t.Context(), e, completions, test.text)
			if diff := cmp.Diff(undecided(t, test.want), undecided(t, string(a.body))); diff != "" {
				t.Errorf("sent and arrived differ: %.2000s", diff)
			}
		})
	}
	f.part("clients that go away", func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := e.client.Process(ctx)
			if err == nil {
				err = sendRequest(stream, newID(), completions, []byte(completion(hot)))
			}
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	eventually(t, "no goroutine is left of it", 30*time.Second, func() bool { return f.goroutines(e) < before+50 })
}

func (f *fleet) goroutines(e *epp) float64 {
	s, err := e.scrape()
	if err != nil {
		f.t.Fatal(err)
	}
	return s.sum("go_goroutines")
}

// refuses checks that the framework answers with status 400.
func (f *fleet) refuses(t *testing.T, e *epp, body string) {
	t.Helper()
	_, err := e.do(t.Context(), newID(), completions, []byte(body))
	var answer *refused
	if !errors.As(err, &answer) || answer.status != 400 {
		t.Errorf("%.80s: %v, want status 400", body, err)
	}
}

// undecided is a body without the decision, which is 0 if it is there at all.
func undecided(t *testing.T, raw string) any {
	t.Helper()
	body := value(t, raw).(map[string]any)
	params, _ := body["kv_transfer_params"].(map[string]any)
	if limit, found := params["max_load_tokens"]; found && limit != json.Number("0") {
		t.Errorf("max_load_tokens is %v", limit)
	}
	if delete(params, "max_load_tokens"); len(params) == 0 {
		delete(body, "kv_transfer_params")
	}
	return body
}
