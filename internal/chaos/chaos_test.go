package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoRuleIsBroken(t *testing.T) {
	r, err := Run(context.Background(), Options{Schedules: schedules, Seed: 1, Parallel: 4, Disk: 0.02, Cluster: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Found {
		t.Errorf("seed %d after %s: %s: %s", v.Seed, v.After, v.Rule, v.Detail)
	}
	a := r.Activity
	if a.Failed == 0 || a.Failed > a.Steps/2 {
		t.Errorf("%d of %d steps failed", a.Failed, a.Steps)
	}
	if !whole {
		return
	}
	// A campaign in which little happens proves little.
	for _, k := range slices.Concat(kinds, clusterKinds) {
		if a.Faults[k] == 0 {
			t.Errorf("%d schedules had no %s", schedules, k)
		}
	}
	for _, k := range []store.Kind{store.KindTrial, store.KindMove, store.KindKeep, store.KindAbort, store.KindShed, store.KindHold, store.KindDrift, store.KindReconcile} {
		if a.Decisions[k] == 0 {
			t.Errorf("%d schedules had no decision of kind %s", schedules, k)
		}
	}
}

// What the campaign found stays found.
func TestSeedsThatFoundBugs(t *testing.T) {
	if !whole {
		t.Skip("takes long under the race detector, which has nothing to find in it")
	}
	for _, seed := range []uint64{1, 12, 23, 26, 32, 37, 40, 74, 139, 199, 292, 340, 424, 425, 716, 1608} {
		for _, v := range (Options{Disk: DefaultDisk}).schedule(seed).violations { // the share on disk is part of the seed
			t.Errorf("seed %d after %s: %s: %s", v.Seed, v.After, v.Rule, v.Detail)
		}
	}
	for _, seed := range []uint64{1145, 2732, 2789, 3442, 3511, 3808, 4161, 4475, 5777, 5895, 7248, 7258, 7588, 9792} {
		for _, v := range (Options{Disk: DefaultDisk, Cluster: DefaultCluster}).schedule(seed).violations {
			t.Errorf("seed %d after %s: %s: %s", v.Seed, v.After, v.Rule, v.Detail)
		}
	}
}

func TestSameSeedSameSchedule(t *testing.T) {
	for _, o := range []Options{{}, {Disk: 1}, {Cluster: 1}} {
		var traces [2]bytes.Buffer
		for i := range traces {
			if _, err := Run(context.Background(), Options{Schedules: 2, Seed: 7, Disk: o.Disk, Cluster: o.Cluster, Trace: &traces[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := traces[0].String(), traces[1].String(); a != b || !strings.Contains(a, "FAULT") || !strings.Contains(a, "record") {
			t.Errorf("disk %v, cluster %v: two runs of one seed differ, or nothing happened:\n%.2000s", o.Disk, o.Cluster, a)
		}
	}
}

// skipped is a journal that says it has kept what it has not.
type skipped struct{}

func (skipped) Append(store.Decision) error { return nil }

// lastAnswers hides failures behind what was answered before, dated now.
type lastAnswers map[bool]model.Matrix

func (l lastAnswers) answer(q query, r result) result {
	m, ok := r.value.(model.Matrix)
	if r.err == nil && ok && len(m) > 0 && len(r.warnings) == 0 {
		l[isPlugin(q.text)] = m
		return r
	}
	last := l[isPlugin(q.text)]
	if len(last) == 0 {
		return r
	}
	shift := model.TimeFromUnixNano(q.at.UnixNano()).Sub(last[0].Values[len(last[0].Values)-1].Timestamp)
	var out model.Matrix
	for _, row := range last {
		points := slices.Clone(row.Values)
		for i := range points {
			points[i].Timestamp = points[i].Timestamp.Add(shift)
		}
		out = append(out, &model.SampleStream{Metric: row.Metric, Values: points})
	}
	return result{value: out}
}

// unseen is a store that does not see a part of the ConfigMap that it writes.
func unseen(forget func(*corev1.ConfigMap)) func(roundTrip) roundTrip {
	return func(next roundTrip) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			answer, err := next(r)
			if err != nil || answer.StatusCode != http.StatusOK {
				return answer, err
			}
			var cm corev1.ConfigMap
			if json.NewDecoder(answer.Body).Decode(&cm) != nil || cm.ResourceVersion == "" {
				return respond(r, http.StatusInternalServerError, nil)
			}
			forget(&cm)
			return respond(r, http.StatusOK, &cm)
		}
	}
}

// The campaign can fail: whoever plants a bug is caught by the rule it breaks.
func TestPlantedBugsAreCaught(t *testing.T) {
	if !whole {
		t.Skip("takes long under the race detector, which has nothing to find in it")
	}
	for _, tc := range []struct {
		name, rule string
		parts      func() parts
		cluster    float64
	}{
		{"a shell that skips the record", "every change is recorded first", func() parts {
			return parts{journal: func(tuner.Journal) tuner.Journal { return skipped{} }}
		}, 0},
		{"a plugin that ignores expiry", "no trial runs past its expiry", func() parts {
			return parts{apply: func(d *store.Document) *store.Document {
				if d.Trial != nil {
					d.Trial.ExpiresAt = d.UpdatedAt.Add(store.MaxLease)
				}
				return d
			}}
		}, 0},
		{"a plugin that reads what is not there", "only what was stored is in force", func() parts {
			return parts{apply: func(d *store.Document) *store.Document { d.Baseline.MaxWaitingRequests = 63; return d }}
		}, 0},
		{"a plugin without bounds and a tuner that leaves its own", "parameters stay in bounds", func() parts {
			return parts{settings: func(s *tuner.Settings) { s.Bounds = store.DefaultBounds() }}
		}, 0},
		{"a search that leaps", "steps stay within their limit", func() parts {
			return parts{settings: func(s *tuner.Settings) { s.Search.Step, s.Search.MaxStep = 8, 8 }}
		}, 0},
		{"a guard that forgets exposure", "candidates run for no longer than they may", func() parts {
			return parts{settings: func(s *tuner.Settings) { s.Guard.MaxExposure = 1 }}
		}, 0},
		{"an observer that acts", "observe mode publishes nothing", func() parts {
			return parts{settings: func(s *tuner.Settings) { s.Mode = tuner.Enforce }}
		}, 0},
		{"a tuner without a calendar", "trials begin within the schedule", func() parts {
			return parts{settings: func(s *tuner.Settings) { s.Schedule = tuner.Schedule{Zone: "UTC"} }}
		}, 0},
		{"a store that loses the end of a trial", "the incumbent is back after an abort", func() parts {
			return parts{publish: func(d *store.Document) *store.Document {
				if d.Trial == nil && d.Revision > 1 {
					return nil
				}
				return d
			}}
		}, 0},
		{"a candidate that never takes turns", "a candidate's lease is short", func() parts {
			return parts{publish: func(d *store.Document) *store.Document {
				if d.Trial != nil {
					d = d.Clone()
					d.Trial.ExpiresAt = d.UpdatedAt.Add(store.MaxLease)
				}
				return d
			}}
		}, 0},
		{"a cache that hides missing data", "missing data never moves a parameter", func() parts {
			return parts{answer: lastAnswers{}.answer}
		}, 0},
		{"an Endpoint Picker that never reads", "the store's parameters are in force", func() parts {
			return parts{apply: func(d *store.Document) *store.Document { d.Revision = 1; return d }}
		}, 0},
		{"a plugin that panics", "nothing panics", func() parts {
			return parts{apply: func(d *store.Document) *store.Document { panic("planted") }}
		}, 0},
		{"a mode that does not ask", "only what was approved is tried", func() parts {
			return parts{settings: func(s *tuner.Settings) {
				if s.Mode == tuner.Propose {
					s.Mode = tuner.Enforce
				}
			}}
		}, 0},
		{"a store that loses a revert", "a revert is obeyed", func() parts {
			return parts{publish: func(d *store.Document) *store.Document {
				if d.Trial == nil && d.Revision > 1 && d.Baseline == tuner.DefaultSettings().Initial {
					return nil
				}
				return d
			}}
		}, 0},
		{"a tuner that cuts pauses short", "nothing is tried in a pause", func() parts {
			return parts{hears: func(c tuner.Command) tuner.Command { c.For = min(c.For, time.Minute); return c }}
		}, 1},
		{"a store that sees its own keys only", "what others keep in the ConfigMap stays", func() parts {
			return parts{wire: unseen(func(cm *corev1.ConfigMap) { delete(cm.Data, notesKey) })}
		}, 1},
		{"a store that knows no field managers", "what a manifest declares is left alone", func() parts {
			return parts{wire: unseen(func(cm *corev1.ConfigMap) { cm.ManagedFields = nil })}
		}, 1},
		{"a store that does not look who has signed", "who was deposed writes no more", func() parts {
			return parts{wire: unseen(func(cm *corev1.ConfigMap) { cm.Annotations = nil })}
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				for _, v := range (Options{parts: tc.parts(), Cluster: tc.cluster}).schedule(seed).violations {
					if v.Rule == tc.rule {
						return
					}
				}
			}
			t.Errorf("not caught by %q", tc.rule)
		})
	}
}

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		from, to store.Params
		want     int
	}{
		{store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, 0},
		{store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 4}, 2},
		{store.Params{MinExternalReusableTokens: 777, MaxWaitingRequests: 8}, store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, 1},
		{store.Params{MinExternalReusableTokens: 32768, MaxWaitingRequests: 64}, store.Params{MinExternalReusableTokens: store.Never, MaxWaitingRequests: store.NoGate}, 1},
		{store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 1}, store.Params{MinExternalReusableTokens: 64, MaxWaitingRequests: 8}, 3},
	} {
		if got := steps(store.DefaultBounds(), tc.from, tc.to); got != tc.want {
			t.Errorf("from %s to %s: %d, want %d", tc.from, tc.to, got, tc.want)
		}
	}
}

func TestOpened(t *testing.T) {
	s := tuner.Schedule{Zone: "Europe/Berlin", Windows: []tuner.Window{{Start: "30 2 * * *", Duration: 20 * time.Minute}}}
	for at, want := range map[string]bool{
		"2026-01-05T01:30:00Z": true, "2026-01-05T01:49:00Z": true, "2026-01-05T01:52:00Z": false, "2026-01-05T01:29:00Z": false,
		"2026-03-29T01:35:00Z": false, // the hour that is skipped
		"2026-10-25T00:35:00Z": true, "2026-10-25T01:35:00Z": true,
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if opened(s, now) != want {
			t.Errorf("open at %s: %v", at, !want)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, o := range []Options{{}, {Schedules: -1}, {Schedules: 1, Parallel: -1}, {Schedules: 1, Disk: 2}, {Schedules: 1, Cluster: -1}} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Options{Schedules: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled campaign: %v", err)
	}
}
