package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asJSON(t *testing.T, r Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func twoPhaseSchedule(t *testing.T) *Schedule {
	t.Helper()
	s, err := ParseSchedule("day", []byte("- {scenario: 1k-c4, duration: 20s}\n- {scenario: 1k-c16, duration: 20s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestSameResultHoweverParallel(t *testing.T) {
	o := small()
	o.Policies = []string{"tuned", "load", "best-static", "static:1024+8"}
	o.Seeds = 1
	o.Parallel = 1
	first := asJSON(t, run(t, o))
	o.Parallel = 4
	if diff := cmp.Diff(string(first), string(asJSON(t, run(t, o)))); diff != "" {
		t.Errorf("one at a time and four at a time differ:\n%s", diff)
	}
}

var rowFields = []string{
	"aborted", "duration_s", "e2e_mean_s", "external_prompt_share", "itl_mean_s", "moves", "output_tokens_per_s",
	"policy", "requests", "requests_per_s", "scenario", "seed", "trials", "ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "waiting_mean",
}

func decodeRows(t *testing.T, r Result) []map[string]any {
	t.Helper()
	var d struct {
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal(asJSON(t, r), &d); err != nil {
		t.Fatal(err)
	}
	return d.Rows
}

func TestRowsOfScenarios(t *testing.T) {
	rows := decodeRows(t, run(t, small()))
	if len(rows) != 4 {
		t.Fatalf("%d rows, want 2 policies x 2 seeds", len(rows))
	}
	for i, r := range rows {
		if diff := cmp.Diff(rowFields, slices.Sorted(maps.Keys(r))); diff != "" {
			t.Errorf("fields of row %d (-want +got):\n%s", i, diff)
		}
		if r["requests"].(float64) < 1 || r["duration_s"] != 20.0 || r["seed"] != float64(1+i%2) {
			t.Errorf("row %d: %v requests in %v s with seed %v", i, r["requests"], r["duration_s"], r["seed"])
		}
	}
	if rows[0]["policy"] != "load" || rows[2]["policy"] != "static:1024+8" {
		t.Errorf("policies are %v, %v; want the order they were asked for", rows[0]["policy"], rows[2]["policy"])
	}
}

func TestEfficiencyAndPairOfBestStatic(t *testing.T) {
	o := small()
	o.Policies, o.Seeds = []string{"recompute", "best-static"}, 1
	for _, r := range run(t, o).Rows {
		if r.Efficiency == nil {
			t.Fatalf("%s has no efficiency", r.Policy)
		}
		isBest := r.Policy == BestStatic
		if isBest != (r.Pair != "") || isBest && *r.Efficiency != 1 || !isBest && !(*r.Efficiency > 0 && *r.Efficiency <= 1) {
			t.Errorf("%s: pair %q, efficiency %v", r.Policy, r.Pair, *r.Efficiency)
		}
	}
}

func TestRowsOfSchedule(t *testing.T) {
	o := small()
	o.Scenarios, o.Duration, o.Schedule = nil, 0, twoPhaseSchedule(t)
	o.Policies, o.Seeds = []string{"static:1024+8", "oracle"}, 1
	rows := run(t, o).Rows
	var places []Place
	for _, r := range rows {
		places = append(places, r.Place)
	}
	one, two, all := Place{"1k-c4", "day", 1}, Place{"1k-c16", "day", 2}, Place{"", "day", 0}
	if diff := cmp.Diff([]Place{one, one, two, two, all, all}, places); diff != "" {
		t.Fatalf("places (-want +got):\n%s", diff)
	}
	fixed, oracle := rows[4], rows[5]
	if fixed.Requests != rows[0].Requests+rows[2].Requests || fixed.Duration != 40 {
		t.Errorf("whole schedule: %d requests in %v s, phases %d and %d", fixed.Requests, fixed.Duration, rows[0].Requests, rows[2].Requests)
	}
	if *oracle.Efficiency != 1 || rows[1].Pair == "" || *rows[0].Efficiency > 1 || *rows[2].Efficiency > 1 {
		t.Errorf("oracle: efficiency %v, pair %q; fixed pair in the phases: %v, %v",
			*oracle.Efficiency, rows[1].Pair, *rows[0].Efficiency, *rows[2].Efficiency)
	}
}

func TestOracleOfScenarioIsBestStatic(t *testing.T) {
	o := small()
	o.Policies, o.Seeds = []string{"best-static", "oracle"}, 1
	rows := run(t, o).Rows
	rows[1].Policy = rows[0].Policy
	if diff := cmp.Diff(rows[0], rows[1]); diff != "" {
		t.Errorf("they differ:\n%s", diff)
	}
}

func TestUnmeasuredIsNull(t *testing.T) {
	o := small()
	o.Duration = time.Second
	for _, r := range decodeRows(t, run(t, o)) {
		if r["requests"] != 0.0 || r["ttft_mean_s"] != nil || r["e2e_mean_s"] != nil {
			t.Errorf("after a second: %v", r)
		}
	}
	o.Policies, o.Seeds = []string{"best-static"}, 1
	if _, err := Run(t.Context(), o); !errors.Is(err, errNothing) {
		t.Errorf("best of nothing: %v", err)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := small()
	o.Seeds, o.Parallel = 50, 1
	finished := 0
	o.Progress = func(done, _ int, _ string) {
		finished = done
		cancel()
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if finished > 2 {
		t.Errorf("%d runs finished after the end was asked for", finished)
	}
}

func TestProgressCountsEveryRunOnce(t *testing.T) {
	o := small()
	o.Policies, o.Seeds = []string{"static:256+4", "best-static"}, 1 // the pair is in the grid
	var seen []int
	total := 0
	o.Progress = func(done, of int, _ string) { seen, total = append(seen, done), of }
	run(t, o)
	want := 4*6 + 1
	if total != want || len(seen) != want || !slices.IsSorted(seen) {
		t.Errorf("%d reports of %d runs, want %d; sorted: %v", len(seen), total, want, slices.IsSorted(seen))
	}
}
