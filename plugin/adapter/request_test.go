package adapter

import (
	"encoding/json"
	"testing"

	"github.com/kvtuner/kvtuner/plugin"
)

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name         string
		evidence     plugin.Evidence
		params, want string
		reason       plugin.Reason
	}{
		{"enough", external, `{"max_load_tokens":9,"x":true}`, `{"x":true}`, plugin.ReasonReusable},
		{"too little", little, `null`, `{"max_load_tokens":0}`, plugin.ReasonBelowMinimum},
		{"no evidence", plugin.Evidence{}, `null`, `null`, plugin.ReasonNoEvidence},
		{"tiers of the client", external, `{"kv_load_tiers":["nvme"]}`, `{"kv_load_tiers":["nvme"],"max_load_tokens":0}`, plugin.ReasonBelowMinimum},
		{"string", little, `"x"`, `"x"`, plugin.ReasonBelowMinimum},
		{"array", little, `["x"]`, `["x"]`, plugin.ReasonBelowMinimum},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, threshold)
			r := routed(true, test.evidence)
			original := r.Body
			original[fieldParams] = decoded(t, test.params)
			f.Decide(t.Context(), r)
			if got := encoded(t, r.Body[fieldParams]); got != test.want {
				t.Errorf("kv_transfer_params %s, want %s", got, test.want)
			}
			if f.decisions(test.reason) != 1 {
				t.Errorf("not decided as %s", test.reason)
			}
			if got := encoded(t, original[fieldParams]); got != encoded(t, decoded(t, test.params)) {
				t.Errorf("the original became %s, was %s", got, test.params)
			}
		})
	}
}

func decoded(t *testing.T, raw string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestSend: the framework hears of changes only.
func TestSend(t *testing.T) {
	for name, test := range map[string]struct {
		evidence plugin.Evidence
		params   map[string]any
		want     int
	}{
		"changed":           {little, nil, 1},
		"nothing to remove": {external, map[string]any{"x": 1}, 0},
		"zero already":      {little, map[string]any{"max_load_tokens": 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			r := routed(false, test.evidence)
			if test.params != nil {
				r.Body[fieldParams] = test.params
			}
			told := 0
			r.Send = func(map[string]any) { told++ }
			f.Decide(t.Context(), r)
			if told != test.want {
				t.Errorf("the framework was told of %d changes, want %d", told, test.want)
			}
		})
	}
}

func TestProfile(t *testing.T) {
	for _, test := range []struct {
		name, configured, primary string
		ran                       []string
		want                      string
		coordinated               bool
		absent                    float64
	}{
		{"one profile", "", "default", []string{"default"}, "default", false, 0},
		{"prefill elsewhere", "", "decode", []string{"decode", "prefill"}, "prefill", true, 0},
		{"prefill did not run", "", "decode", []string{"decode"}, "decode", false, 0},
		{"prefill is primary", "", "prefill", []string{"prefill", "decode"}, "prefill", false, 0},
		{"decode configured", "decode", "decode", []string{"decode", "prefill"}, "decode", true, 0},
		{"decode configured, no prefill", "decode", "decode", []string{"decode"}, "decode", false, 0},
		{"another name for prefill", "p", "d", []string{"d", "p"}, "p", true, 0},
		{"configured is primary", "p", "p", []string{"p", "d"}, "p", false, 0},
		{"configured did not run", "p", "d", []string{"d"}, "d", false, 1},
		{"configured did not run, prefill did", "p", "d", []string{"d", "prefill"}, "d", true, 1},
		{"prefill configured, did not run", "prefill", "d", []string{"d"}, "d", false, 1},
		{"none ran", "", "d", nil, "d", false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			parameters := threshold
			if test.configured != "" {
				parameters = `{"profile":"` + test.configured + `",` + threshold[1:]
			}
			f := newFixture(t, parameters)
			ran := map[string]bool{}
			for _, name := range test.ran {
				ran[name] = true
			}
			got, coordinated := f.Profile(test.primary, func(name string) bool { return ran[name] })
			if got != test.want || coordinated != test.coordinated {
				t.Errorf("profile %q, coordinated %v; want %q, %v", got, coordinated, test.want, test.coordinated)
			}
			if n := f.faults(FaultProfile); n != test.absent {
				t.Errorf("profile absent %g times, want %g", n, test.absent)
			}
		})
	}
}

// TestCoordinator: with prefill elsewhere, a decision may never arrive. It is
// written all the same, counted, and what comes of the request is not put down
// to it.
func TestCoordinator(t *testing.T) {
	for name, test := range map[string]struct {
		evidence plugin.Evidence
		want     float64
	}{"edited": {little, 1}, "nothing to lose": {external, 0}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, threshold)
			r := routed(true, test.evidence)
			r.Coordinated = true
			f.Decide(t.Context(), r)
			if got := f.faults(FaultCoordinator); got != test.want {
				t.Errorf("counted %g times, want %g", got, test.want)
			}
			if f.inFlight.get(r.Key) != nil || f.counter("selective_kv_cost_started_total") != 0 {
				t.Error("the response would count as the decision's doing")
			}
		})
	}
}

func TestInFlightBounds(t *testing.T) {
	f := newFixture(t, threshold)
	for i := range maxInFlight {
		if !f.inFlight.add(i, &decided{at: f.clock}) {
			t.Fatalf("full after %d", i)
		}
	}
	r := routed(true, little)
	f.Decide(t.Context(), r)
	if f.inFlight.get(r.Key) != nil || f.faults(FaultFull) != 1 {
		t.Error("remembered more than the bound, or did not count it")
	}
	f.sweep(f.clock.Add(maxDuration))
	if f.faults(FaultExpired) != 0 {
		t.Error("forgot requests within their time")
	}
	f.sweep(f.clock.Add(maxDuration + 1))
	if got := f.faults(FaultExpired); got != maxInFlight || f.inFlight.n.Load() != 0 {
		t.Errorf("expired %g, left %d", got, f.inFlight.n.Load())
	}
}
