package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/store"
)

// Setting is a policy of the published matrix.
type Setting struct {
	// Policy is "load", "recompute" or "threshold".
	Policy string
	// MinTokens and MaxWaiting are the thresholds of "threshold"; a MaxWaiting
	// of 0 is no gate.
	MinTokens, MaxWaiting int
}

func (s Setting) String() string {
	if s.Policy != "threshold" {
		return s.Policy
	}
	return fmt.Sprintf("%d+%d", s.MinTokens, s.MaxWaiting)
}

// ParseSetting reads what String writes: load, recompute, or
// <tokens>+<waiting>.
func ParseSetting(text string) (Setting, error) {
	if text == "load" || text == "recompute" {
		return Setting{Policy: text}, nil
	}
	tokens, waiting, ok := strings.Cut(text, "+")
	t, err := strconv.Atoi(tokens)
	w, errWaiting := strconv.Atoi(waiting)
	if !ok || err != nil || errWaiting != nil {
		return Setting{}, fmt.Errorf("policy %s; allowed: load, recompute, or <tokens>+<waiting> such as 1024+8", clip(text))
	}
	s := Setting{Policy: "threshold", MinTokens: t, MaxWaiting: w}
	return s, s.check()
}

func (s Setting) check() error {
	switch {
	case s.Policy == "load" || s.Policy == "recompute":
		return nil
	case s.Policy != "threshold":
		return fmt.Errorf("policy %s; allowed: load, recompute, threshold", clip(s.Policy))
	case s.MinTokens < 1 || s.MinTokens > maxTraceTokens:
		return fmt.Errorf("min_external_reusable_tokens %d: want 1 to %d", s.MinTokens, maxTraceTokens)
	case s.MaxWaiting < 0 || s.MaxWaiting > maxWaiting:
		return fmt.Errorf("max_waiting_requests %d: want 0, no gate, to %d", s.MaxWaiting, maxWaiting)
	}
	return nil
}

const maxWaiting = 1 << 20

// Build returns the policy on a clock: the plugin itself without probes, or,
// for "load", none at all, which is what the engine does by itself.
func (s Setting) Build(now func() time.Time) (Policy, error) {
	var c plugin.Config
	switch s.Policy {
	case "load":
		return noPolicy{}, nil
	case "recompute":
		c.LoadPolicy = plugin.Disable
	case "threshold":
		c.LoadPolicy = plugin.Threshold
		c.MinExternalReusableTokens = store.Tokens(s.MinTokens)
		c.MaxWaitingRequests = s.MaxWaiting
	default:
		return nil, fmt.Errorf("policy %q; allowed: load, recompute, threshold", s.Policy)
	}
	return plugin.New(plugin.Options{Config: c, Pool: "published", Now: now})
}

// noPolicy lets every request load.
type noPolicy struct{}

func (noPolicy) Observe(string, int, time.Time)        {}
func (noPolicy) ObserveRunning(string, int, time.Time) {}
func (noPolicy) Decide(*plugin.Request) plugin.Decision {
	return plugin.Decision{Action: plugin.Load, Reason: plugin.ReasonPreserved, Arm: store.ArmBaseline}
}
func (noPolicy) ObserveFirstToken(plugin.Decision, time.Duration, int) {}
func (noPolicy) ObserveOutput(plugin.Decision, int)                    {}
