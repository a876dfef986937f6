package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/internal/fleet"
	"github.com/kvtuner/kvtuner/internal/prom"
	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// record runs a scenario under a tuner in a mode, and keeps a snapshot of its
// Prometheus.
func record(t *testing.T, mode tuner.Mode) (dir string, o Outcome, settings tuner.Settings) {
	t.Helper()
	s, err := fleet.ByName("8k-c32-slow-storage")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	o, err = Run{
		Phases: []Phase{{Scenario: s, Duration: 30 * time.Minute}}, Policy: Tuned(start), Seed: 1,
		Adjust: func(s *tuner.Settings) { s.Mode = mode; settings = *s },
		Recorded: func(p *prom.Server, _ time.Time) error {
			return p.Storage().(interface{ Snapshot(string, bool) error }).Snapshot(dir, true)
		},
	}.Do(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return dir, o, settings
}

func replay(t *testing.T, dir string, s tuner.Settings, from, to time.Time) tuner.ReplayReport {
	t.Helper()
	a, err := prom.OpenArchive(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := tuner.Replay{Settings: s, Prometheus: a, QueryTimeout: time.Minute, From: from, To: to}.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func suggestions(decisions []store.Decision) (out []store.Params) {
	for _, d := range decisions {
		if d.Kind == store.KindSuggest {
			out = append(out, d.To)
		}
	}
	return out
}

// What a tuner in mode observe suggested is what a replay of its history says.
func TestReplayDecidesAsTheObserverDid(t *testing.T) {
	t.Parallel()
	dir, o, s := record(t, tuner.Observe)
	before := listing(t, dir)
	from, to := epoch, epoch.Add(30*time.Minute)
	r := replay(t, dir, s, from, to)
	if want := suggestions(o.Decisions); len(want) == 0 || !cmp.Equal(suggestions(r.Decisions), want) {
		t.Errorf("suggested %v, the observer %v", suggestions(r.Decisions), want)
	}
	if r.Measured.OK < 100 || r.Predicted.Steps < 50 || r.Measured.InTrial != 0 {
		t.Errorf("measured %+v, predicted over %d steps", r.Measured, r.Predicted.Steps)
	}
	// Storage is slow: restoring less would have saved time, and the one in force
	// changes nothing.
	if g := r.Predicted.Suggested; g.Seconds <= 0 || g.Low > g.Seconds || g.High < g.Seconds {
		t.Errorf("suggested %+v", g)
	}
	for _, g := range r.Predicted.Minimums {
		if g.Minimum == start.MinExternalReusableTokens && (g.Seconds != 0 || g.Low != 0 || g.High != 0) {
			t.Errorf("what was in force gains %+v", g)
		}
	}
	if again := replay(t, dir, s, from, to); !cmp.Equal(again, r) {
		t.Errorf("two replays differ:\n%s", cmp.Diff(again, r))
	}
	if after := listing(t, dir); !cmp.Equal(before, after) {
		t.Errorf("the snapshot has changed:\n%s", cmp.Diff(before, after))
	}
}

// A trial of the past is not taken for the incumbent, and a move is noticed.
func TestReplayOfAnEnforcedPast(t *testing.T) {
	t.Parallel()
	dir, o, s := record(t, tuner.Enforce)
	r := replay(t, dir, s, epoch, epoch.Add(30*time.Minute))
	if r.Measured.InTrial == 0 || len(o.Path) < 3 {
		t.Fatalf("no trial was seen; the path was %+v", o.Path)
	}
	last := o.Path[len(o.Path)-1]
	if got := r.Steps[len(r.Steps)-1]; last.Arm == store.ArmBaseline && got.Params != last.Params {
		t.Errorf("%s was in force at the end, not %s", got.Params, last.Params)
	}
}

// Where nothing was scraped, steps are unknown, and nothing is decided but a hold.
func TestReplayOfAGap(t *testing.T) {
	t.Parallel()
	dir, _, s := record(t, tuner.Observe)
	r := replay(t, dir, s, epoch.Add(20*time.Minute), epoch.Add(50*time.Minute))
	held := false
	for _, d := range r.Decisions {
		held = held || d.Kind == store.KindHold
		if d.Time.After(epoch.Add(31*time.Minute)) && d.Kind != store.KindHold {
			t.Errorf("%s at %s", d.Kind, d.Time)
		}
	}
	if r.Measured.Unknown < 70 || !held || r.Steps[len(r.Steps)-1].Why == "" {
		t.Errorf("measured %+v, held: %v", r.Measured, held)
	}
}

func TestReplayRefuses(t *testing.T) {
	s := tuner.DefaultSettings()
	s.Name = "p"
	for name, to := range map[string]time.Time{"nothing": epoch, "a year": epoch.AddDate(1, 0, 0), "backwards": epoch.Add(-time.Hour)} {
		_, err := tuner.Replay{Settings: s, Prometheus: &prom.Archive{}, QueryTimeout: time.Second, From: epoch, To: to}.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "steps of 15s are not allowed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenArchiveRefuses(t *testing.T) {
	empty := t.TempDir()
	plain := filepath.Join(empty, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	held := t.TempDir()
	server, err := prom.Open(prom.Options{Dir: held})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	broken := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(broken, "01BKGV7JBM69T2G1BGBGM6KB12"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "01BKGV7JBM69T2G1BGBGM6KB12", "meta.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		empty: "neither blocks nor a write-ahead log", plain: "it is no directory", held: "a running Prometheus holds",
		broken: "1 of its 1 blocks cannot be read", filepath.Join(empty, "none"): "no such file",
	} {
		a, err := prom.OpenArchive(dir)
		if !errors.Is(err, prom.ErrArchive) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
		if err == nil {
			_ = a.Close()
		}
	}
}

func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		names = append(names, path+" "+info.ModTime().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
