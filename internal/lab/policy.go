package lab

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// Policy is a way to run a fleet: always restore, always recompute, a fixed
// pair of thresholds, the tuner, or plain hill climbing.
type Policy struct {
	kind   kind
	params store.Params
}

type kind int

const (
	load kind = iota
	recompute
	static
	tuned
	adaptive
	climb
)

// staticPrefix starts the name of a fixed pair.
const staticPrefix = "static:"

// AlwaysLoad restores whatever is found, and looks for every request.
func AlwaysLoad() Policy { return Policy{kind: load} }

// AlwaysRecompute never restores.
func AlwaysRecompute() Policy { return Policy{kind: recompute} }

// Static keeps one pair of thresholds.
func Static(p store.Params) Policy { return Policy{kind: static, params: p} }

// Tuned starts from a pair of thresholds and lets the tuner move them.
func Tuned(initial store.Params) Policy { return Policy{kind: tuned, params: initial} }

// Adaptive is Tuned with store.Adaptive in force from the start.
func Adaptive(initial store.Params) Policy {
	initial.LoadPolicy = store.Adaptive
	return Policy{kind: adaptive, params: initial}
}

// tunes tells that the tuner runs.
func (p Policy) tunes() bool { return p.kind == tuned || p.kind == adaptive }

// Climb starts at 1024+8 and takes a step each minute, without the tuner.
func Climb() Policy { return Policy{kind: climb, params: published} }

// published is the fixed pair that others start from.
var published = store.Params{MinExternalReusableTokens: 1024, MaxWaitingRequests: 8}

// ParsePolicy reads a policy's name: load, recompute, tuned, adaptive, climb,
// static:<tokens>+<waiting>.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "load":
		return AlwaysLoad(), nil
	case "recompute":
		return AlwaysRecompute(), nil
	case "adaptive":
		return Adaptive(published), nil
	case "tuned":
		return Tuned(published), nil
	case "climb":
		return Climb(), nil
	}
	if pair, ok := strings.CutPrefix(name, staticPrefix); ok {
		p, err := store.ParseParams(pair)
		if err != nil {
			return Policy{}, fmt.Errorf("policy %q: %w", name, err)
		}
		return Static(p), nil
	}
	return Policy{}, fmt.Errorf("policy %q is not known; use load, recompute, tuned, adaptive, climb or static:<tokens>+<waiting>", name)
}

// String is the policy's name, as ParsePolicy reads it.
func (p Policy) String() string {
	switch p.kind {
	case load:
		return "load"
	case recompute:
		return "recompute"
	case tuned:
		return "tuned"
	case adaptive:
		return "adaptive"
	case climb:
		return "climb"
	}
	return staticPrefix + p.params.String()
}

// never tells that a static pair is the same as recomputing.
func (p Policy) never() bool {
	return p.kind == static && p.params.MinExternalReusableTokens == store.Never
}

// decider builds what the fleet asks, and for a tuned fleet the policy that
// takes documents.
func (p Policy) build(now func() time.Time, r prometheus.Registerer) (*plugin.Policy, error) {
	config := `{"loadPolicy":"disable"}`
	if p.kind == static && !p.never() || p.documented() {
		config = fmt.Sprintf(`{"loadPolicy":%q,"minExternalReusableTokens":%s,"maxWaitingRequests":%d%s}`,
			p.params.LoadPolicy, jsonTokens(p.params.MinExternalReusableTokens), p.params.MaxWaitingRequests, p.tuning())
	}
	c, err := plugin.ParseConfig([]byte(config))
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p, err)
	}
	return plugin.New(plugin.Options{
		Config: c, Pool: poolName, Now: now, Registerer: r,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// documented policies move their thresholds by documents.
func (p Policy) documented() bool { return p.tunes() || p.kind == climb }

func (p Policy) tuning() string {
	if !p.documented() {
		return ""
	}
	return `,"tuning":{"file":"parameters.json"}`
}

func jsonTokens(t store.Tokens) string {
	raw, err := t.MarshalJSON()
	if err != nil {
		return "null"
	}
	return string(raw)
}

// alwaysLoad is vLLM's behaviour without a policy.
type alwaysLoad struct{}

func (alwaysLoad) Observe(string, int, time.Time)        {}
func (alwaysLoad) ObserveRunning(string, int, time.Time) {}
func (alwaysLoad) Decide(*plugin.Request) plugin.Decision {
	return plugin.Decision{Action: plugin.Load, Reason: plugin.ReasonPreserved, Arm: store.ArmBaseline}
}
func (alwaysLoad) ObserveFirstToken(plugin.Decision, time.Duration, int) {}
func (alwaysLoad) ObserveOutput(plugin.Decision, int)                    {}
