package fleet

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kvtuner/kvtuner/plugin"
)

func start(t testing.TB, scenario string, setting Setting, seed uint64) *Fleet {
	t.Helper()
	s, err := ByName(scenario)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newMeasured(t.Context(), s, setting, seed)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func change(t testing.TB, f *Fleet, scenario string) {
	t.Helper()
	s, err := ByName(scenario)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Switch(s); err != nil {
		t.Fatal(err)
	}
}

// quiet lets everything in flight end.
func quiet(t testing.TB, f *Fleet) {
	t.Helper()
	f.workload.Streams = 0
	f.openEpoch++
	for range 100 {
		f.Advance(100 * time.Second)
		if f.requests.inFlight() == 0 {
			return
		}
	}
	t.Fatalf("%d requests never ended", f.requests.inFlight())
}

var (
	loading   = Setting{Policy: "load"}
	recompute = Setting{Policy: "recompute"}
	threshold = Setting{Policy: "threshold", MinTokens: 1024, MaxWaiting: 8}
)

func TestSameSeedSameResult(t *testing.T) {
	for _, scenario := range []string{"8k-c64", "mixed-c64", "8k-bursts", "heavy-tail-c64", "zipf-c64", "chat-c256"} {
		run := func(seed uint64, step time.Duration) (Stats, []Second, string) {
			f := start(t, scenario, threshold, seed)
			for range 60 * time.Second / step {
				f.Advance(step)
			}
			return f.Stats(), f.Seconds(), exposed(t, f)
		}
		stats, seconds, text := run(1, time.Second)
		again, secondsAgain, textAgain := run(1, time.Second)
		if d := cmp.Diff(stats, again); d != "" {
			t.Errorf("%s: same seed, other result: %s", scenario, d)
		}
		if d := cmp.Diff(seconds, secondsAgain); d != "" || text != textAgain {
			t.Errorf("%s: same seed, other series or metrics: %s", scenario, d)
		}
		whole, _, _ := run(1, 60*time.Second)
		if d := cmp.Diff(stats, whole, cmpopts.EquateApprox(1e-9, 0)); d != "" {
			t.Errorf("%s: the size of the steps matters: %s", scenario, d)
		}
		if other, _, _ := run(2, time.Second); other == stats {
			t.Errorf("%s: another seed, same result", scenario)
		}
	}
}

func exposed(t testing.TB, f *Fleet) string {
	t.Helper()
	text := ""
	for _, e := range f.Endpoints() {
		families, err := e.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families {
			text += m.String() + "\n"
		}
	}
	return text
}

func TestNothingIsLost(t *testing.T) {
	for _, scenario := range []string{"1k-c16", "8k-c64", "mixed-c64-slow-storage", "4k-bursts", "heavy-tail-c64", "4k-poisson", "chat-c256"} {
		for _, setting := range []Setting{loading, recompute, threshold} {
			t.Run(scenario+" "+setting.String(), func(t *testing.T) {
				f := start(t, scenario, setting, 3)
				for range 12 {
					f.Advance(5 * time.Second)
					inFlight := uint64(f.requests.inFlight())
					if f.count.issued != f.count.completed+inFlight {
						t.Fatalf("issued %d, completed %d, in flight %d", f.count.issued, f.count.completed, inFlight)
					}
				}
				quiet(t, f)
				checkIdle(t, f)
			})
		}
	}
}

// checkIdle holds the books of a fleet without requests.
func checkIdle(t *testing.T, f *Fleet) {
	t.Helper()
	if f.storage.lookups != 0 {
		t.Errorf("%d lookups outstanding", f.storage.lookups)
	}
	for i := range f.replicas {
		r := &f.replicas[i]
		if r.gpu.pinned() != 0 || r.cpu.pinned() != 0 {
			t.Errorf("%s: %d GPU and %d CPU blocks pinned", f.names[i], r.gpu.pinned(), r.cpu.pinned())
		}
		if l := r.load(); l != (load{}) || r.decoding != 0 || r.context != 0 || r.lookupBlocks != 0 {
			t.Errorf("%s: load %+v, %d decoding, %d tokens of context, %d lookup blocks", f.names[i], l, r.decoding, r.context, r.lookupBlocks)
		}
		m := &r.metrics
		if sum := m.localCompute + m.localHit + m.external; sum != m.prompt {
			t.Errorf("%s: %v prompt tokens, by source %v", f.names[i], m.prompt, sum)
		}
		if m.generated != m.finished*128 {
			t.Errorf("%s: %v tokens generated for %v requests of 128", f.names[i], m.generated, m.finished)
		}
	}
}

func TestSwitchKeepsRequestsAndCaches(t *testing.T) {
	f := start(t, "8k-c64", threshold, 1)
	f.Advance(20 * time.Second)
	held := f.gpuHits()
	for _, scenario := range []string{"mixed-c64-slow-storage", "8k-c16", "4k-bursts", "8k-c64", "1k-c32"} {
		change(t, f, scenario)
		before := f.count
		f.Advance(30 * time.Second)
		if f.count.completed == before.completed {
			t.Errorf("%s: nothing completed", scenario)
		}
	}
	if f.gpuHits() == held {
		t.Error("no hits after the switches")
	}
	if n := f.requests.inFlight(); n != 32 {
		t.Errorf("%d requests in flight; want the 32 streams of the last scenario", n)
	}
	quiet(t, f)
	checkIdle(t, f)
}

func TestColdFleetStartsEmpty(t *testing.T) {
	s, err := ByName("8k-c16")
	if err != nil {
		t.Fatal(err)
	}
	hits := func(cold bool) float64 {
		f, err := New(Options{Scenario: s, Seed: 1, Policy: noPolicy{}, Cold: cold})
		if err != nil {
			t.Fatal(err)
		}
		f.Advance(20 * time.Second)
		return f.Stats().GPUHitShare
	}
	if warm, cold := hits(false), hits(true); warm < 0.4 || cold > 0.3 {
		t.Errorf("GPU hit share in the first seconds: warm %.2f, cold %.2f", warm, cold)
	}
}

func TestSwitchRefusesAnotherFleet(t *testing.T) {
	f := start(t, "1k-c4", loading, 1)
	s, _ := ByName("1k-c4")
	s.Profile.Replicas = 8
	if err := f.Switch(s); err == nil {
		t.Error("switched to eight engines")
	}
}

// Throughput times end-to-end time is the number of streams.
func TestLittlesLaw(t *testing.T) {
	f := start(t, "2k-c32", recompute, 1)
	f.Advance(100 * time.Second)
	f.ResetStats()
	f.Advance(200 * time.Second)
	s := f.Stats()
	if n := s.RequestsPerSecond * s.E2EMean; math.Abs(n-32) > 0.5 {
		t.Errorf("%.2f requests in flight; want 32", n)
	}
	if e2e := s.TTFTMean + 127*s.ITLMean; math.Abs(e2e-s.E2EMean) > 1e-6 {
		t.Errorf("TTFT and 127 gaps are %v s; end to end %v s", e2e, s.E2EMean)
	}
}

func TestOpenLoopServesDemand(t *testing.T) {
	f := start(t, "4k-bursts", recompute, 1)
	f.Advance(1200 * time.Second)
	want := (18.*20 + 6*40) / 60
	if got := f.Stats().RequestsPerSecond; math.Abs(got-want) > 0.05*want {
		t.Errorf("%.2f requests/s; want the demand, %.2f", got, want)
	}
}

// A slower service must not change what clients ask for.
func TestCommonRandomNumbers(t *testing.T) {
	asked := func(setting Setting) map[uint64]int32 {
		f := start(t, "mixed-c64", setting, 5)
		seen := map[uint64]int32{}
		for range 400 {
			f.Advance(50 * time.Millisecond)
			for _, q := range f.requests.all {
				if q.serial != 0 {
					seen[q.serial] = q.prefix
				}
			}
		}
		return seen
	}
	a, b := asked(loading), asked(recompute)
	both := 0
	for serial, prefix := range a {
		if other, ok := b[serial]; ok {
			both++
			if other != prefix {
				t.Fatalf("request %d asks for %d or %d, by policy", serial, prefix, other)
			}
		}
	}
	if both < 200 {
		t.Errorf("only %d requests compared", both)
	}
}

// The cost of a request, in events, must not grow with the run.
func TestCostIsLinear(t *testing.T) {
	f := start(t, "8k-c64", threshold, 1)
	perRequest := func() float64 {
		events, done := f.events.seq, f.count.completed
		f.Advance(200 * time.Second)
		return float64(f.events.seq-events) / float64(f.count.completed-done)
	}
	perRequest()
	early := perRequest()
	f.Advance(2000 * time.Second)
	if late := perRequest(); late > 1.2*early {
		t.Errorf("%.0f events a request, %.0f later", early, late)
	}
	if n := len(f.requests.all); n > 64 {
		t.Errorf("%d requests kept for 64 streams", n)
	}
}

// recorder wraps a policy and keeps what it was told.
type recorder struct {
	Policy
	observed  map[string]time.Time
	endpoints map[string]int
	first     int
	computed  int
	output    int
	bad       string
}

func (r *recorder) Observe(endpoint string, waiting int, at time.Time) {
	if last, ok := r.observed[endpoint]; ok && at.Sub(last) != 50*time.Millisecond {
		r.bad = fmt.Sprintf("%s observed after %v", endpoint, at.Sub(last))
	}
	r.observed[endpoint] = at
	r.Policy.Observe(endpoint, waiting, at)
}

func (r *recorder) Decide(q *plugin.Request) plugin.Decision {
	r.endpoints[q.Endpoint]++
	m := q.Evidence.Prompts[0]
	if m.CachedBlocks != max(m.ByTier["gpu"], m.ByTier["cpu"]) || q.Evidence.BlockSize != 64 || q.ID == "" {
		r.bad = fmt.Sprintf("evidence %+v", q)
	}
	return r.Policy.Decide(q)
}

func (r *recorder) ObserveFirstToken(_ plugin.Decision, ttft time.Duration, computed int) {
	r.first++
	r.computed += computed
	if ttft <= 0 || computed < 256 {
		r.bad = fmt.Sprintf("first token after %v and %d tokens", ttft, computed)
	}
}

func (r *recorder) ObserveOutput(_ plugin.Decision, tokens int) { r.output += tokens }

func TestPolicySeesWhatTheEPPSees(t *testing.T) {
	s, _ := ByName("4k-c64")
	r := &recorder{Policy: noPolicy{}, observed: map[string]time.Time{}, endpoints: map[string]int{}}
	epoch := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	f, err := New(Options{Scenario: s, Seed: 1, Policy: r, Start: epoch})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	if got := f.Now(); !got.Equal(epoch.Add(time.Minute)) {
		t.Errorf("now %v; want a minute after %v", got, epoch)
	}
	if r.bad != "" {
		t.Error(r.bad)
	}
	if len(r.observed) != 4 || len(r.endpoints) != 4 {
		t.Errorf("observed %v, decided for %v; want four endpoints each", r.observed, r.endpoints)
	}
	prompt, finished := 0., 0.
	for i := range f.replicas {
		m := &f.replicas[i].metrics
		prompt += m.prompt
		finished += m.finished
	}
	if r.first != int(prompt)/4352 || r.output != int(finished)*128 {
		t.Errorf("told %d first tokens and %d output tokens; want %v and %v", r.first, r.output, prompt/4352, finished*128)
	}
}

func BenchmarkFleet(b *testing.B) {
	for _, setting := range []Setting{loading, recompute, threshold} {
		b.Run("8k-c64/"+setting.String(), func(b *testing.B) {
			f := start(b, "8k-c64", setting, 1)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				f.Advance(time.Second)
				if f.stats.since+300*second < f.now {
					f.ResetStats()
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "virtual-s/s")
		})
	}
}

func BenchmarkGather(b *testing.B) {
	f := start(b, "8k-c64", loading, 1)
	f.Advance(10 * time.Second)
	e := f.Endpoints()[0]
	b.ReportAllocs()
	for range b.N {
		if _, err := e.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
