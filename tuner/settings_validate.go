package tuner

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// ttftEdges are vLLM's TTFT bucket edges in seconds; only these can be an SLO,
// because a share of requests is only known at an edge.
var ttftEdges = []float64{
	.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5,
	10, 20, 40, 80, 160, 640, 2560,
}

// Validate reports every impossible setting at once; each error names the
// setting, its value and what is allowed.
func (s Settings) Validate() error {
	errs := []error{s.validatePool(), s.Objective.validate(), s.Guard.validate(),
		s.Trial.validate(s.step()), s.Search.validate()}
	if err := s.Bounds.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("bounds: %w", err))
	} else if !s.Bounds.Contains(s.Initial) {
		errs = append(errs, fmt.Errorf("initial: %s lies outside bounds; widen the bounds or start inside them", s.Initial))
	}
	if s.Initial.LoadPolicy == store.Adaptive && s.Search.Adaptive == AdaptiveOff {
		errs = append(errs, fmt.Errorf("initial: %s is not allowed while search.adaptive is %q; use %q or %q", s.Initial, AdaptiveOff, AdaptiveTry, AdaptiveOn))
	}
	if _, err := newCalendar(s.Schedule); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pool %q: %w", s.Name, err)
	}
	return nil
}

func (s Settings) validatePool() error {
	var errs []error
	if s.Name == "" {
		errs = append(errs, errors.New("name: is empty; each pool needs a name"))
	} else if err := store.CheckPool(s.Name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	}
	if s.Mode != Observe && s.Mode != Propose && s.Mode != Enforce {
		errs = append(errs, fmt.Errorf("mode: %q is not allowed; use %q, %q or %q", s.Mode, Observe, Propose, Enforce))
	}
	errs = append(errs, between("approval", s.Approval, time.Minute, 24*time.Hour))
	if err := checkMatchers(s.Selector); err != nil {
		errs = append(errs, fmt.Errorf("selector: %w", err))
	}
	if err := checkMatchers(s.PluginSelector); err != nil {
		errs = append(errs, fmt.Errorf("pluginSelector: %w", err))
	}
	if err := checkLabelName(s.EndpointLabel); err != nil {
		errs = append(errs, fmt.Errorf("endpointLabel: %w", err))
	}
	if err := checkLabelName(s.ReplicaLabel); err != nil {
		errs = append(errs, fmt.Errorf("replicaLabel: %w", err))
	}
	if s.Endpoints < 0 {
		errs = append(errs, fmt.Errorf("endpoints: %d is not allowed; 0 or more", s.Endpoints))
	}
	if s.TensorParallel < 1 {
		errs = append(errs, fmt.Errorf("tensorParallel: %d is not allowed; 1 or more", s.TensorParallel))
	}
	errs = append(errs, s.Metrics.validate(s.Mode))
	errs = append(errs, between("scrapeInterval", s.ScrapeInterval, time.Second, 5*time.Minute))
	if err := s.Initial.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("initial: %w", err))
	}
	return errors.Join(errs...)
}

func (o Objective) validate() error {
	weights := []struct {
		name string
		v    float64
	}{{"e2e", o.E2E}, {"throughput", o.Throughput}, {"ttft", o.TTFT}, {"restore", o.Restore}}
	var errs []error
	sum := 0.0
	for _, w := range weights {
		if !(w.v >= 0 && w.v <= 1e6) {
			errs = append(errs, fmt.Errorf("objective.%s: %v is not allowed; a weight from 0 to 1e6", w.name, w.v))
			continue
		}
		sum += w.v
	}
	if len(errs) == 0 && sum == 0 {
		errs = append(errs, errors.New("objective: all weights are 0; at least one must be positive"))
	}
	return errors.Join(errs...)
}

func (g Guard) validate() error {
	errs := []error{
		share("guard.within", g.Within), share("guard.maxErrorShare", g.MaxErrorShare),
		share("guard.collapseWaiting", g.CollapseWaiting), share("guard.maxExposure", g.MaxExposure),
		between("guard.cooldown", g.Cooldown, time.Minute, 24*time.Hour),
		between("guard.maxCooldown", g.MaxCooldown, g.Cooldown, 7*24*time.Hour),
	}
	if !(g.MaxRegression > 0 && g.MaxRegression <= 1) {
		errs = append(errs, fmt.Errorf("guard.maxRegression: %v is not allowed; above 0, at most 1", g.MaxRegression))
	}
	if g.Within > 0 && !isTTFTEdge(g.TTFT) {
		errs = append(errs, fmt.Errorf("guard.ttft: %v is not an edge of vLLM's TTFT histogram; use one of %v seconds", g.TTFT, ttftEdges))
	}
	return errors.Join(errs...)
}

func isTTFTEdge(d time.Duration) bool {
	for _, e := range ttftEdges {
		if math.Abs(d.Seconds()-e) < 1e-9 {
			return true
		}
	}
	return false
}

func (t Trial) validate(sample time.Duration) error {
	errs := []error{
		between("trial.block", t.Block, 30*time.Second, 20*time.Minute),
		between("trial.washout", t.Washout, 0, t.Block),
	}
	if judged := t.Block - t.Washout; judged < minBlockSamples*sample {
		errs = append(errs, fmt.Errorf("trial.block: %v minus trial.washout %v leaves %v; at least %d samples of %v must remain to be judged",
			t.Block, t.Washout, judged, minBlockSamples, sample))
	}
	if t.MaxBlocks < 1 || t.MaxBlocks > 50 {
		errs = append(errs, fmt.Errorf("trial.maxBlocks: %d is not allowed; 1 to 50", t.MaxBlocks))
	}
	if !(t.Alpha >= 1e-6 && t.Alpha <= 0.2) {
		errs = append(errs, fmt.Errorf("trial.alpha: %v is not allowed; 0.000001 to 0.2", t.Alpha))
	}
	if !(t.MinEffect >= 0.001 && t.MinEffect <= 0.5) {
		errs = append(errs, fmt.Errorf("trial.minEffect: %v is not allowed; 0.001 to 0.5", t.MinEffect))
	}
	if t.MinRequests < 1 {
		errs = append(errs, fmt.Errorf("trial.minRequests: %d is not allowed; 1 or more", t.MinRequests))
	}
	return errors.Join(errs...)
}

func (s Search) validate() error {
	errs := []error{
		share("search.batchCost", s.BatchCost),
		between("search.evidence", s.Evidence, time.Minute, time.Hour),
		between("search.explore", s.Explore, time.Minute, 7*24*time.Hour),
		between("search.maxExplore", s.MaxExplore, s.Explore, 30*24*time.Hour),
	}
	if s.Step < 1 || s.Step > s.MaxStep {
		errs = append(errs, fmt.Errorf("search.step: %d is not allowed; 1 to search.maxStep (%d)", s.Step, s.MaxStep))
	}
	if s.Adaptive != AdaptiveOff && s.Adaptive != AdaptiveTry && s.Adaptive != AdaptiveOn {
		errs = append(errs, fmt.Errorf("search.adaptive: %q is not allowed; %q, %q or %q", s.Adaptive, AdaptiveOff, AdaptiveTry, AdaptiveOn))
	}
	if s.MaxStep > 8 {
		errs = append(errs, fmt.Errorf("search.maxStep: %d is not allowed; at most 8", s.MaxStep))
	}
	return errors.Join(errs...)
}

func share(name string, v float64) error {
	if v >= 0 && v <= 1 {
		return nil
	}
	return fmt.Errorf("%s: %v is not allowed; 0 to 1", name, v)
}

func between(name string, v, low, high time.Duration) error {
	if v >= low && v <= high {
		return nil
	}
	return fmt.Errorf("%s: %v is not allowed; %v to %v", name, v, low, high)
}
