package adapter

import (
	"testing"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

const factor = "selective_kv_endpoint_restore_factor"

// newAdaptive is a fixture whose document weighs requests: restoring 1280 tokens
// takes 0.2 s, computing them 0.1 s, and half of that for every request beside it.
func newAdaptive(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, `{"pool":"qwen","loadPolicy":"adaptive","minExternalReusableTokens":1024,"tuning":{"file":"`+t.TempDir()+`/none.json"}}`)
	f.update(store.Update{Document: &store.Document{
		APIVersion: store.APIVersion, Pool: "qwen", Revision: 1, UpdatedAt: f.clock,
		Baseline: store.Params{MinExternalReusableTokens: 1024, LoadPolicy: store.Adaptive},
		Costs: &store.Costs{
			FittedAt: f.clock, ExpiresAt: f.clock.Add(time.Hour), BaseSeconds: 0.1, SecondsPerToken: 0.1 / 1280, Crowding: 0.5,
			Restores: []store.RestoreCost{{Reusable: 1024, Seconds: 0.2, Requests: 10}},
		},
	}})
	return f
}

// Requests running in the engine are part of the decision, however the EPP came to
// know of them.
func TestRunningIsWeighed(t *testing.T) {
	const waiting = "vllm:num_requests_waiting 0\n"
	for _, tc := range []struct {
		name    string
		observe func(*fixture)
		want    plugin.Reason
	}{
		{"routed, alone", func(f *fixture) { f.Routed(a, Load{At: f.clock}) }, plugin.ReasonRestoreDearer},
		{"routed, beside others", func(f *fixture) { f.Routed(a, Load{Running: 4, At: f.clock}) }, plugin.ReasonReusable},
		{"scraped, alone", func(f *fixture) { f.Scraped(a, scrape(f.t.(*testing.T), waiting+"vllm:num_requests_running 0\n")) }, plugin.ReasonRestoreDearer},
		{"scraped, beside others", func(f *fixture) {
			f.Scraped(a, scrape(f.t.(*testing.T), waiting+"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 2\n"))
		}, plugin.ReasonReusable},
		{"scraped, not known", func(f *fixture) { f.Scraped(a, scrape(f.t.(*testing.T), waiting)) }, plugin.ReasonReusable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newAdaptive(t)
			tc.observe(f)
			f.Decide(t.Context(), routed(true, external))
			if f.decisions(tc.want) != 1 {
				t.Errorf("not %v", tc.want)
			}
		})
	}
}

// A request that will never bring a first token is not one whose restore is late.
func TestEndsWithoutFirstToken(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*fixture, *Request)
		late bool
	}{
		{"goes on", func(*fixture, *Request) {}, true},
		{"refused", func(f *fixture, r *Request) { f.respond(r, refused, []part{{0, broken}}) }, false},
		{"client went away", func(f *fixture, r *Request) { f.respond(r, nil, []part{{0, broken}}) }, false},
		{"replaced by another plugin", func(f *fixture, r *Request) {
			f.ResponseHeader(r.Key, stream, map[string]any{"kv_transfer_params": map[string]any{"max_load_tokens": 0}})
		}, false},
		{"answered", func(f *fixture, r *Request) { f.respond(r, stream, []part{{0, silent}, {0, ended}}) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newAdaptive(t)
			f.Routed(a, Load{Running: 4, At: f.clock})
			r := routed(true, external)
			r.Body["kv_transfer_params"] = map[string]any{"max_load_tokens": 0} // which the policy removes
			f.Decide(t.Context(), r)
			tc.end(f, r)
			f.clock = f.clock.Add(20 * time.Second)
			f.Routed(a, Load{Running: 4, At: f.clock})
			if got := f.counter(factor); (got > 1.01) != tc.late {
				t.Errorf("restores count as %g times as dear as expected", got)
			}
		})
	}
}
