package plugin

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvtuner/kvtuner/store"
)

// document is a valid one of pool "p".
func document(revision int64, at time.Time, p store.Params) *store.Document {
	return &store.Document{APIVersion: store.APIVersion, Pool: "p", Revision: revision, UpdatedAt: at, Baseline: p}
}

// withTrial adds a candidate for ten minutes.
func withTrial(d *store.Document, p store.Params, a store.Assignment) *store.Document {
	d.Trial = &store.Trial{ID: "t", Candidate: p, Assignment: a, StartedAt: d.UpdatedAt, ExpiresAt: d.UpdatedAt.Add(10 * time.Minute)}
	return d
}

var (
	small = store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 4}
	large = store.Params{MinExternalReusableTokens: 4096, MaxWaitingRequests: 16}
	all   = store.Assignment{Mode: store.AssignAll}
)

func TestApplyRefusesAndKeepsWhatIsInForce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*store.Document) *store.Document
		want  error
		label string
	}{
		{"none", func(*store.Document) *store.Document { return nil }, store.ErrInvalid, documentInvalid},
		{"impossible value", func(d *store.Document) *store.Document { d.Baseline.MaxWaitingRequests = -1; return d }, store.ErrInvalid, documentInvalid},
		{"other version", func(d *store.Document) *store.Document { d.APIVersion = "v9"; return d }, store.ErrInvalid, documentInvalid},
		{"other pool", func(d *store.Document) *store.Document { d.Pool = "q"; return d }, ErrPool, documentPool},
		{"older", func(d *store.Document) *store.Document { d.Revision = 6; return d }, ErrRevision, documentRevision},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, clk, reg := newPolicy(t, threshold(1024, 8))
			if err := p.Apply(document(7, clk.now(), small)); err != nil {
				t.Fatal(err)
			}
			before := p.InForce()
			if err := p.Apply(tt.spoil(document(8, clk.now(), large))); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, p.InForce()); diff != "" {
				t.Errorf("in force changed (-before +after):\n%s", diff)
			}
			if got := value1(t, reg, "selective_kv_documents_refused_total", "reason", tt.label); got != 1 {
				t.Errorf("refused as %s: %v, want 1", tt.label, got)
			}
		})
	}
}

func TestStaticConfigurationRulesUntilADocumentIsValid(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	_ = p.Apply(document(0, clk.now(), small))
	want := InForce{Source: SourceConfig, Baseline: store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, Costs: CostsNone}
	if diff := cmp.Diff(want, p.InForce()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	d := p.Decide(request("", "a", 16))
	if d.Revision != 0 || d.Arm != store.ArmBaseline || d.Reason != ReasonReusable {
		t.Errorf("decision %+v, want a load of the baseline at revision 0", d)
	}
}

// Someone edited the document by hand and left its revision as it was.
func TestApplyTheSameRevisionEdited(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1024, 8))
	for _, params := range []store.Params{small, large, large} {
		if err := p.Apply(document(1, clk.now(), params)); err != nil {
			t.Fatal(err)
		}
		if got := p.InForce().Baseline; got != params {
			t.Errorf("in force %v, want %v", got, params)
		}
	}
	if got := sum(t, reg, "selective_kv_documents_refused_total"); got != 0 {
		t.Errorf("%v refused, want 0", got)
	}
}

func TestStopReturnsToTheStaticConfiguration(t *testing.T) {
	p, clk, reg := newPolicy(t, threshold(1024, 8))
	p.Stop(store.ErrStopped) // changes nothing yet
	if err := p.Apply(withTrial(document(7, clk.now(), small), large, all)); err != nil {
		t.Fatal(err)
	}
	p.Stop(store.ErrStopped)
	want := InForce{Source: SourceConfig, Baseline: store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}, Costs: CostsNone}
	if diff := cmp.Diff(want, p.InForce()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if d := p.Decide(request("", "a", 16)); d.Arm != store.ArmBaseline || d.Revision != 0 {
		t.Errorf("decision %+v, want the static baseline", d)
	}
	if err := p.Apply(document(6, clk.now(), small)); err != nil || p.InForce().Revision != 6 {
		t.Errorf("after the stop: %v, %+v", err, p.InForce())
	}
	if got := sum(t, reg, "selective_kv_documents_refused_total"); got != 0 {
		t.Errorf("%v refused, want 0", got)
	}
}

func TestApplyClampsToBounds(t *testing.T) {
	c := threshold(1024, 8)
	c.Tuning = &Tuning{File: "p.json", Bounds: store.Bounds{
		MinExternalReusableTokens: store.TokenRange{Min: 256, Max: 2048},
		MaxWaitingRequests:        store.WaitingRange{Min: 2, Max: 8},
	}}
	p, clk, reg := newPolicy(t, c)
	doc := document(1, clk.now(), store.Params{MinExternalReusableTokens: 512, MaxWaitingRequests: 4})
	if err := p.Apply(withTrial(doc, store.Params{MinExternalReusableTokens: store.Never}, all)); err != nil {
		t.Fatal(err)
	}
	f := p.InForce()
	if f.BaselineClamped || !f.Trial.Clamped || f.Trial.Candidate != (store.Params{MinExternalReusableTokens: 2048, MaxWaitingRequests: 8}) {
		t.Errorf("in force %+v, trial %+v, want the candidate alone clamped to 2048+8", f, f.Trial)
	}
	for arm, want := range map[store.Arm]float64{store.ArmBaseline: 0, store.ArmCandidate: 1} {
		if got := value1(t, reg, "selective_kv_clamped", "arm", string(arm)); got != want {
			t.Errorf("clamped %s: %v, want %v", arm, got, want)
		}
	}
	if got := p.Decide(request("", "a", 32)).Reason; got != ReasonReusable {
		t.Errorf("2048 tokens: %v, want reusable", got)
	}
}

func TestApplyClampsALimitBeyondTheGate(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1, 8))
	if err := p.Apply(document(1, clk.now(), store.Params{MinExternalReusableTokens: 1, MaxWaitingRequests: 1 << 40})); err != nil {
		t.Fatal(err)
	}
	if f := p.InForce(); f.Baseline.MaxWaitingRequests != maxGateLimit || !f.BaselineClamped {
		t.Errorf("in force %+v, want a limit clamped to %d", f, maxGateLimit)
	}
}

func TestTrialExpiresByTheClock(t *testing.T) {
	for _, tt := range []struct {
		name    string
		maxAge  time.Duration
		written time.Duration // after now
		lasts   time.Duration
	}{
		{"at its expiry", time.Hour, 0, 10 * time.Minute},
		{"at the maximum age of its document", time.Minute, -10 * time.Second, 50 * time.Second},
		{"by our clock if the writer's is ahead", time.Minute, 24 * time.Hour, time.Minute},
		{"at once if it is over", time.Hour, -10 * time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := threshold(1024, 8)
			c.Tuning = &Tuning{File: "p.json", MaxAge: tt.maxAge}
			p, clk, reg := newPolicy(t, c)
			if err := p.Apply(withTrial(document(1, clk.now().Add(tt.written), small), large, all)); err != nil {
				t.Fatal(err)
			}
			if tt.lasts > 0 {
				clk.advance(tt.lasts - 1)
				checkArm(t, p, store.ArmCandidate, ReasonBelowMinimum)
				if f := p.InForce(); f.Source != SourceStore || f.Trial == nil || f.Trial.ID != "t" {
					t.Errorf("before the end: %+v", f)
				}
				clk.advance(1)
			}
			checkArm(t, p, store.ArmBaseline, ReasonReusable)
			if f := p.InForce(); f.Source != SourceExpired || f.Trial != nil || f.Baseline != small || f.Revision != 1 {
				t.Errorf("after the end: %+v, want the baseline, source expired", f)
			}
			if got := value1(t, reg, "selective_kv_source", "source", "expired"); got != 1 {
				t.Errorf("source expired is %v, want 1", got)
			}
			clk.advance(1000 * time.Hour)
			checkArm(t, p, store.ArmBaseline, ReasonReusable)
			if err := p.Apply(document(2, clk.now(), small)); err != nil || p.InForce().Source != SourceStore {
				t.Errorf("a newer document: %v, source %v, want store", err, p.InForce().Source)
			}
		})
	}
}

// checkArm decides on 640 tokens: enough for small, too few for large.
func checkArm(t *testing.T, p *Policy, arm store.Arm, reason Reason) {
	t.Helper()
	if d := p.Decide(request("", "a", 10)); d.Arm != arm || d.Reason != reason || d.Revision != 1 {
		t.Errorf("decision %+v, want %s, %v, revision 1", d, arm, reason)
	}
}

func TestArmsFollowTheDocument(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	for i, a := range []store.Assignment{
		{Mode: store.AssignNone},
		all,
		{Mode: store.AssignSubset, Share: 0.5, Seed: 3},
		{Mode: store.AssignSubset, Share: 0.5, Seed: 3, Swapped: true},
		{Mode: store.AssignSubset, Share: 0.1, Seed: 4},
	} {
		doc := withTrial(document(int64(i+1), clk.now(), small), large, a)
		if err := p.Apply(doc); err != nil {
			t.Fatal(err)
		}
		seen := map[store.Arm]int{}
		for n := range 200 {
			name := fmt.Sprintf("pod-%d", n)
			if n%2 == 0 { // known and unknown endpoints are drawn alike
				p.Observe(name, 0, clk.now())
			}
			_, want := doc.InForce(name, clk.now())
			for range 2 { // drawn, and remembered
				if got := p.Decide(request("", name, 10)).Arm; got != want {
					t.Fatalf("%+v, %s: arm %s, want %s", a, name, got, want)
				}
			}
			seen[want]++
		}
		if a.Mode == store.AssignSubset && len(seen) != 2 {
			t.Errorf("%+v: arms %v, want both", a, seen)
		}
	}
}

// A document edited by hand, or the first after the kill switch, may have another
// trial under a revision that was in force before.
func TestArmsFollowARevisionThatComesAgain(t *testing.T) {
	p, clk, _ := newPolicy(t, threshold(1024, 8))
	half := store.Assignment{Mode: store.AssignSubset, Share: 0.5, Seed: 3}
	swapped := half
	swapped.Swapped = true
	for i, a := range []store.Assignment{half, swapped, half} {
		if i == 2 {
			p.Stop(store.ErrStopped)
		}
		doc := withTrial(document(7, clk.now(), small), large, a)
		if err := p.Apply(doc); err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			name := fmt.Sprintf("pod-%d", n)
			p.Observe(name, 0, clk.now())
			_, want := doc.InForce(name, clk.now())
			if got := p.Decide(request("", name, 10)).Arm; got != want {
				t.Errorf("swapped %v, %s: arm %s, want %s", a.Swapped, name, got, want)
			}
		}
	}
}

func TestDocumentsMeanNothingWithoutThresholds(t *testing.T) {
	p, clk, _ := newPolicy(t, Config{LoadPolicy: Disable})
	if err := p.Apply(document(1, clk.now(), small)); !errors.Is(err, ErrStatic) {
		t.Errorf("error %v, want %v", err, ErrStatic)
	}
}

func TestRejectCounts(t *testing.T) {
	p, _, reg := newPolicy(t, threshold(1024, 8))
	_, err := store.Parse([]byte("{"))
	p.Reject(err)
	p.Reject(errors.New("connection refused"))
	for _, reason := range []string{documentInvalid, documentWatch} {
		if got := value1(t, reg, "selective_kv_documents_refused_total", "reason", reason); got != 1 {
			t.Errorf("%s: %v, want 1", reason, got)
		}
	}
	if got := p.InForce().Source; got != SourceConfig {
		t.Errorf("source %v, want config", got)
	}
}
